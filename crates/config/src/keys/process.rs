//! The keys of the process: its threads, its memory and its rights.

use crate::declare::settings;
use crate::values::{Auto, ByteSize, Name};

settings! {
    /// The threads that serve requests.
    section workers: WorkersConfig {
        /// Number of workers. "auto" starts one for each processor that CPU affinity and the cgroup quota allow the
        /// tracker to use.
        count: Auto<u32> = Auto::Auto, in 1..=1024 => Restart;

        /// Bind each worker to a processor of its own. This gains a little on a dedicated machine. It hurts where other
        /// programs share the processors, since a pinned worker cannot move to a free one.
        pin: bool = false => Restart;

        /// Give each datagram to the worker on the processor that received it, which saves its way through another cache.
        /// Only for pinned workers, and only where the network card spreads its work over all their processors (as
        /// many receive queues as workers): a worker gets no more than its processor receives.
        steer: bool = false => Restart;
    }

    /// The memory of the whole process.
    section memory: MemoryConfig {
        /// Memory limit of the whole process: swarms and peers, connections and their buffers, queues, and the program
        /// itself. The tracker divides it at start and logs the shares. "auto" is three quarters of the machine's memory
        /// or of the cgroup limit, whichever is less; the rest remains for the kernel's socket buffers. The minimum is 26
        /// MiB plus 6 MiB for each worker.
        max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(24)..=ByteSize::gib(16_384) => Restart, essential;
    }

    /// The privileges of the process once it serves: the user that it runs as, and the sandbox.
    section process: ProcessConfig {
        /// The user, by name or number, that the tracker runs as once it has bound its sockets. Only root can change to
        /// another user. Everything but the configuration file is read after the change, so that what can be read at start
        /// can also be read at a reload. "" stays the user that starts the tracker, which suits systemd and containers.
        user: Option<Name> = None => Restart;

        /// The group, by name or number. "" is the primary group of the user. All other groups are given up.
        group: Option<Name> = None => Restart;

        /// Forbid files, directories and TCP ports other than those of this configuration, with Landlock, where the
        /// kernel has it (Linux 5.13 for files, 6.7 for ports). The log tells what holds. A reload that names a file
        /// elsewhere is refused.
        landlock: bool = true => Restart;

        /// Forbid system calls that the tracker does not need, with seccomp: it can start no other program, and its
        /// workers can open no file and no connection.
        seccomp: bool = true => Restart;

        /// Permit core dumps and debuggers. They contain the memory of the process, and with it the private keys of
        /// certificates and the addresses of peers.
        core_dumps: bool = false => Restart;
    }
}
