//! A virtual LAN at one end of a pair of interfaces, by a relay in this process: kernels without 802.1Q can take part in it. Number 0
//! is no VLAN: its tags have a priority alone, and every kernel takes such frames as if they had none.
//!
//! Programs use a TAP device without tags. The relay adds the tag to what they send, and passes on what the other end sends,
//! without the tag.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::namespace::Namespace;
use crate::network::{Side, index_of, packet_socket};

/// The MAC address of the TAP device. It is administered locally.
pub const MAC: &str = "02:00:00:00:00:07";
const MAC_BYTES: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// `linux/if_tun.h`.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TAP: u16 = 2;
const IFF_NO_PI: u16 = 0x1000;

/// The largest frame.
const FRAME_BYTES_MAX: usize = 4096;

/// Where the tag is in a frame: behind the two addresses.
const TAG_AT: usize = 12;

/// How long the relay may take to see that it is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The relay, which ends when this is dropped.
#[derive(Debug)]
pub struct Vlan {
    is_ended: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

/// How the relay treats frames.
#[derive(Clone, Copy, Debug)]
struct Rules {
    number: u16,
    /// Returns whether a frame of the TAP device gets the tag.
    is_tagged: fn(&[u8]) -> bool,
    /// Returns whether a frame of the other end is for the TAP device.
    is_for_tap: fn(&[u8]) -> bool,
}

impl Vlan {
    /// Connects a new TAP device in a namespace to the VLAN of this number at its interface. Its address is [`MAC`]; frames to
    /// another are not for it.
    #[must_use]
    pub fn connect(side: &Side, device: &str, number: u16) -> Self {
        Self::start(
            &side.namespace,
            side.device,
            device,
            Rules { number, is_tagged: |_| true, is_for_tap: |frame| frame.starts_with(&MAC_BYTES) },
        )
    }

    /// Connects a new TAP device in a namespace to an interface in it, with UDP datagrams in the VLAN of this number, and all other
    /// frames outside of it.
    #[must_use]
    pub fn connect_datagrams(namespace: &Namespace, interface: &str, device: &str, number: u16) -> Self {
        Self::start(
            namespace,
            interface,
            device,
            Rules { number, is_tagged: is_datagram, is_for_tap: |_| true },
        )
    }

    fn start(namespace: &Namespace, interface: &str, device: &str, rules: Rules) -> Self {
        let open = || (open_tap(device).unwrap(), packet_socket(index_of(interface)));
        let (tap, socket) = namespace.run(open);
        namespace.ip(&format!("link set {device} address {MAC} up\n")).unwrap();
        let is_ended = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&is_ended);
        let body = move || {
            while !ended.load(Ordering::Relaxed) {
                // A device that is removed ends the relay, and with it the test.
                pass(&tap, &socket, &rules).unwrap();
            }
        };
        Self { is_ended, relay: Some(thread::spawn(body)) }
    }
}

impl Drop for Vlan {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            // If it has failed, its message was printed.
            let _ended = relay.join();
        }
    }
}

/// Returns whether a frame holds a UDP datagram. IPv6 extension headers are not looked through.
fn is_datagram(frame: &[u8]) -> bool {
    const UDP: u8 = 17;
    let protocol_at = match frame.get(TAG_AT..TAG_AT + 2) {
        Some([0x08, 0x00]) => 23,
        Some([0x86, 0xdd]) => 20,
        _ => return false,
    };
    frame.get(protocol_at) == Some(&UDP)
}

/// Passes on a frame in each direction, if there is one soon.
fn pass(tap: &File, socket: &OwnedFd, rules: &Rules) -> io::Result<()> {
    let mut both = [PollFd::new(tap, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
    match poll(&mut both, Some(&LOOK)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let [from_tap, from_socket] = both.map(|one| one.revents().contains(PollFlags::IN));
    let mut frame = [0; FRAME_BYTES_MAX];
    if from_tap {
        let bytes = (&*tap).read(&mut frame)?;
        let frame = &frame[..bytes];
        let (addresses, rest) = frame.split_at(TAG_AT);
        let [high, low] = rules.number.to_be_bytes();
        let tag: &[u8] = if (rules.is_tagged)(frame) { &[0x81, 0x00, high, low] } else { &[] };
        send(socket, &[addresses, tag, rest].concat(), SendFlags::empty())?;
    }
    if from_socket {
        let (bytes, _) = recv(socket.as_fd(), &mut frame[..], RecvFlags::empty())?;
        let frame = &frame[..bytes];
        // The kernel has taken the tag off.
        if (rules.is_for_tap)(frame) {
            (&*tap).write_all(frame)?;
        }
    }
    Ok(())
}

fn open_tap(name: &str) -> io::Result<File> {
    /// `struct ifreq`, as far as it is used.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        unused: [u8; 22],
    }
    let tap = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, unused: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq`, which has 40 bytes as `Request` has, and keeps no pointer to it.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(tap) }
}
