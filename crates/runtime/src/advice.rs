//! Advice for the operator: errors of the host are reported together with a remedy. The log of a tracker and `shoal
//! doctor` use the same words.

use core::fmt::Display;
use std::io::ErrorKind;

use anyhow::anyhow;
use shoal_net::stream::{ListenAddress, ListenError};
use shoal_net::{BindError, BufferShortfall, Unsupported};

/// The consequence of a socket buffer that the kernel caps.
pub const BUFFERS_SMALL: &str =
    "the kernel grants smaller socket buffers than configured, so that datagrams of bursts are lost sooner";

/// The consequence of a kernel that grants no huge pages, and the command that changes it.
pub const HUGE_PAGES_OFF: &str = "huge pages are off, which makes large stores slower";
/// See [`HUGE_PAGES_OFF`].
pub const PERMIT_HUGE_PAGES: &str = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";

/// How to raise the limit on open files.
pub const RAISE_OPEN_FILES: &str = "raise it (`ulimit -n`, or LimitNOFILE= in a systemd unit)";

/// How to permit ports below 1024.
pub const PERMIT_PORTS: &str = "grant it (`setcap cap_net_bind_service=+ep` on the program, or in a systemd unit \
                                AmbientCapabilities=CAP_NET_BIND_SERVICE)";

/// Returns the command that sets a parameter of the kernel.
pub fn set_sysctl(name: &str, value: impl Display) -> String {
    format!("sysctl -w {name}={value}")
}

/// Returns the command that shows which process has a port.
pub fn show_holder(is_udp: bool, port: u16) -> String {
    format!("ss -l{}np 'sport = :{port}'", if is_udp { 'u' } else { 't' })
}

/// Adds the remedy to an error about a socket of datagrams.
pub fn bind(error: BindError) -> anyhow::Error {
    let is_family_missing = error.is_family_missing();
    let BindError::Address { addr, ref source, .. } = error else { return anyhow!(error) };
    let port = addr.port();
    match source.kind() {
        _ if is_family_missing => anyhow!("{error}; leave {addr} out of udp.listen"),
        ErrorKind::AddrInUse => anyhow!(
            "{error}; stop it (`{}` shows what it is) or set udp.listen to another port",
            show_holder(true, port)
        ),
        ErrorKind::PermissionDenied => {
            anyhow!("{error}; {PERMIT_PORTS} or set udp.listen to a port from 1024 on")
        }
        ErrorKind::AddrNotAvailable => {
            anyhow!("{error}; `ip address` lists the available addresses; set udp.listen to some of them")
        }
        _ => anyhow!(error),
    }
}

/// Adds the remedy to an error about a listener.
pub fn listen(error: &ListenError) -> anyhow::Error {
    match (&error.address, error.kind()) {
        (ListenAddress::Tcp(addr), _) if error.is_family_missing() => {
            anyhow!("{error}; leave {addr} out of http.listen or tls.listen")
        }
        (ListenAddress::Tcp(addr), ErrorKind::AddrInUse) => anyhow!(
            "{error}; stop it (`{}` shows what it is) or set http.listen or tls.listen to another port",
            show_holder(false, addr.port())
        ),
        (ListenAddress::Tcp(_), ErrorKind::PermissionDenied) => {
            anyhow!("{error}; {PERMIT_PORTS} or set http.listen or tls.listen to a port from 1024 on")
        }
        (ListenAddress::Tcp(_), ErrorKind::AddrNotAvailable) => {
            anyhow!(
                "{error}; `ip address` lists the available addresses; set http.listen or tls.listen to some of them"
            )
        }
        (ListenAddress::Unix(_), ErrorKind::AddrInUse) => anyhow!(
            "{error}; stop it (`ss -lxp` lists the listening processes) or set http.listen or tls.listen to another file"
        ),
        (ListenAddress::Unix(_), ErrorKind::PermissionDenied | ErrorKind::NotFound) => anyhow!(
            "{error}; set http.listen or tls.listen to a file in an existing directory that this user may write \
             to (in a systemd unit RuntimeDirectory=shoal makes /run/shoal)"
        ),
        _ => anyhow!("{error}; set http.listen or tls.listen to another address"),
    }
}

/// Names the key that selects another back end, for one that does not work.
pub fn backend(error: Unsupported) -> anyhow::Error {
    anyhow!("{error}; set udp.io to \"auto\" to select the best one that works")
}

/// Warns, once for each kernel parameter, that socket buffers are smaller than configured.
pub fn warn_of_shortfalls<'s>(shortfalls: impl Iterator<Item = &'s BufferShortfall>) {
    let mut warned: Vec<&str> = Vec::new();
    for shortfall in shortfalls {
        if warned.contains(&shortfall.sysctl) {
            continue;
        }
        warned.push(shortfall.sysctl);
        let BufferShortfall { sysctl, wanted_bytes, granted_bytes, .. } = shortfall;
        tracing::warn!(
            wanted_bytes,
            granted_bytes,
            "{BUFFERS_SMALL}; `{}` allows them",
            set_sysctl(sysctl, wanted_bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::slice;

    use shoal_net::stream::StreamListeners;

    use super::*;

    fn advice_on(kind: ErrorKind) -> String {
        let addr = "192.0.2.1:80".parse().unwrap();
        bind(BindError::Address { addr, doing: "bind", source: kind.into() }).to_string()
    }

    #[test]
    fn every_fault_that_an_operator_can_mend_comes_with_the_way_to_do_it() {
        assert!(advice_on(ErrorKind::AddrInUse).contains("`ss -lunp 'sport = :80'`"));
        assert!(advice_on(ErrorKind::PermissionDenied).contains("cap_net_bind_service=+ep"));
        assert!(advice_on(ErrorKind::AddrNotAvailable).contains("`ip address`"));
        for kind in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::AddrNotAvailable] {
            let advice = advice_on(kind);
            assert!(advice.contains("192.0.2.1:80") && advice.contains("udp.listen"), "{advice}");
        }
        // EAFNOSUPPORT of asm-generic/errno.h, as on a host that was booted with ipv6.disable=1.
        let source = std::io::Error::from_raw_os_error(97);
        let missing = BindError::Address { addr: "[::]:80".parse().unwrap(), doing: "socket", source };
        let advice = bind(missing).to_string();
        assert!(advice.ends_with("this host has no IPv6; leave [::]:80 out of udp.listen"), "{advice}");
    }

    #[test]
    fn so_do_those_about_listeners() {
        let directory = tempfile::tempdir().unwrap();
        let missing = ListenAddress::Unix(directory.path().join("missing/http.sock"));
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = ListenAddress::Tcp(other.local_addr().unwrap());
        let foreign = ListenAddress::Tcp("192.0.2.1:1".parse().unwrap());
        for (address, way) in [
            (missing, "RuntimeDirectory=shoal"),
            (ListenAddress::Unix(file), "`ss -lxp`"),
            (port, "`ss -ltnp 'sport = :"),
            (foreign, "`ip address`"),
        ] {
            let error = StreamListeners::bind(slice::from_ref(&address), NonZeroUsize::MIN).unwrap_err();
            let advice = listen(&error).to_string();
            assert!(advice.contains(&address.to_string()) && advice.contains(way), "{advice}");
            assert!(advice.contains("http.listen or tls.listen"), "{advice}");
        }
    }
}
