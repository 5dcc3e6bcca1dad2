//! Messages with descriptors between the two processes.
//!
//! A message is four bytes of length, then its bytes in the encoding of `postcard`. Descriptors come with the length.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use shoal_base::transport::stream::DETACHED_BYTES_MAX;

use crate::ancillary;

/// Maximum length of a message: a connection with its partial input and its unsent output.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(DETACHED_BYTES_MAX < MESSAGE_BYTES_MAX - 1024, "a connection fits");

/// One end of the conversation.
#[derive(Debug)]
pub(super) struct Connection(UnixStream);

impl Connection {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// Limits the time to wait for a message, and the time to send one.
    pub(super) fn set_time_max(&self, time_max: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(time_max))?;
        self.0.set_write_timeout(Some(time_max))
    }

    /// Waits for messages without a limit.
    pub(super) fn wait_forever(&self) -> io::Result<()> {
        self.0.set_read_timeout(None)
    }

    /// Ends the conversation. Both processes stop sending, receiving and waiting.
    pub(super) fn close(&self) {
        // If this fails, the other process is gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Sends a message with descriptors. A message that was sent in part ends the connection.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes();
        let sent = ancillary::send(&self.0, &length, descriptors)?;
        // The rest of the length and the message carry no descriptors.
        let outcome = (&self.0).write_all(&length[sent..]).and_then(|()| (&self.0).write_all(&bytes));
        if outcome.is_err() {
            // The receiver would take the next message for the rest of this one.
            self.close();
        }
        outcome
    }

    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut length = [0; size_of::<u32>()];
        let (received, descriptors) = ancillary::receive(&self.0, &mut length)?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (&self.0).read_exact(&mut length[received..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::other("a message is too long"));
        }
        let mut bytes = vec![0; length];
        (&self.0).read_exact(&mut bytes)?;
        Ok((postcard::from_bytes(&bytes).map_err(io::Error::other)?, descriptors))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::ancillary::DESCRIPTORS_MAX;

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Connection::new(one), Connection::new(other));
        let file = File::open("/dev/null").unwrap();
        for count in [0, 1, DESCRIPTORS_MAX] {
            one.send(&format!("{count} descriptors"), &vec![file.as_fd(); count]).unwrap();
        }
        for count in [0, 1, DESCRIPTORS_MAX] {
            let (text, descriptors): (String, _) = other.receive().unwrap();
            assert_eq!((text, descriptors.len()), (format!("{count} descriptors"), count));
        }
        drop(one);
        assert_eq!(other.receive::<String>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn nothing_follows_a_message_that_was_sent_in_part() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Connection::new(one), Connection::new(other));
        one.set_time_max(Duration::from_millis(1)).unwrap();
        let long = "m".repeat(MESSAGE_BYTES_MAX / 2);
        while one.send(&long, &[]).is_ok() {}
        one.set_time_max(Duration::from_secs(10)).unwrap();
        assert!(one.send(&"next", &[]).is_err());
        while let Ok((text, _)) = other.receive::<String>() {
            assert_eq!(text, long);
        }
    }
}
