//! Datagrams that bypass the kernel's socket path: an eBPF program at the hook of the driver (XDP), and AF_XDP sockets.
//!
//! The crate owns the program and its maps ([`program`]), the model of a frame ([`frame`]), which the program mirrors,
//! and the rings that carry frames ([`socket`]). It must not interpret the payload of a datagram, beyond what the
//! program needs to answer a connect request (BEP 15). It takes no decisions: keys, networks and limits are arguments.
//!
//! Only the modules that share memory with the kernel or pass pointers to it contain `unsafe`: `program::{mapped,
//! syscall}`, `socket::{mapping, umem, options}` and `interface::{ioctl, addresses}`.

pub mod frame;
pub mod interface;
pub mod program;
pub mod route;
pub mod socket;
