//! The data path that a running tracker hands over.
//!
//! It consists of descriptors: for each interface the link of its program, and for each queue the AF_XDP socket and
//! the file of its frames. Their names identify them.

use std::fs::File;
use std::os::fd::OwnedFd;

use shoal_xdp::program::Mode;
use shoal_xdp::socket::Parts;

/// The beginnings of the names of descriptors.
const LINK: &str = "xdp-link";
const SOCKET: &str = "xdp-socket";
const FRAMES: &str = "xdp-frames";

#[derive(Debug, Default)]
pub(crate) struct HandedDataPath(Vec<(String, OwnedFd)>);

impl HandedDataPath {
    /// Takes the descriptors of a data path from all handed-over descriptors.
    pub(crate) fn take(handed: &mut Vec<(String, OwnedFd)>) -> Self {
        let (parts, others) = std::mem::take(handed).into_iter().partition(|(name, _)| is_part(name));
        *handed = others;
        Self(parts)
    }

    /// Takes the link of an interface, with the mode of its program.
    pub(super) fn link(&mut self, interface: &str) -> Option<(OwnedFd, Mode)> {
        [Mode::Native, Mode::Generic]
            .into_iter()
            .find_map(|mode| Some((self.remove(&link_name(interface, mode))?, mode)))
    }

    /// Takes the socket of a queue, with the memory of its frames.
    pub(super) fn socket(&mut self, interface: &str, queue: u32) -> Option<Parts> {
        let [socket, memory] = socket_names(interface, queue);
        let (socket, memory) = self.remove(&socket).zip(self.remove(&memory))?;
        Some(Parts { socket, memory })
    }

    pub(super) fn frames_bytes(&self, interface: &str, queue: u32) -> Option<u64> {
        let [_, frames] = socket_names(interface, queue);
        let (_, file) = self.0.iter().find(|(name, _)| *name == frames)?;
        Some(File::from(file.try_clone().ok()?).metadata().ok()?.len())
    }

    fn remove(&mut self, name: &str) -> Option<OwnedFd> {
        let place = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(place).1)
    }
}

fn is_part(name: &str) -> bool {
    let kind = name.split('/').next();
    kind.is_some_and(|kind| [LINK, SOCKET, FRAMES].contains(&kind))
}

pub(super) fn link_name(interface: &str, mode: Mode) -> String {
    format!("{LINK}/{interface}/{}", mode_name(mode))
}

/// Returns the names of the socket of a queue and of the file of its frames.
pub(super) fn socket_names(interface: &str, queue: u32) -> [String; 2] {
    [SOCKET, FRAMES].map(|kind| format!("{kind}/{interface}/{queue}"))
}

pub(super) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Generic => "generic",
        Mode::Native | Mode::Auto => "native",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_is_found_under_its_name_once() {
        let descriptor = || OwnedFd::from(File::open("/dev/null").unwrap());
        let [socket, frames] = socket_names("eth0", 3);
        let names = [link_name("eth0", Mode::Generic), socket, frames, "handed-udp".to_owned()];
        let mut handed: Vec<_> = names.into_iter().map(|name| (name, descriptor())).collect();
        let mut parts = HandedDataPath::take(&mut handed);
        assert_eq!(handed.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["handed-udp"]);
        assert!(parts.link("eth1").is_none() && parts.socket("eth0", 2).is_none());
        assert_eq!(parts.link("eth0").unwrap().1, Mode::Generic);
        assert!(parts.socket("eth0", 3).is_some() && parts.socket("eth0", 3).is_none());
        assert!(parts.0.is_empty());
    }
}
