//! A datagram as a multishot RECVMSG writes it into a provided buffer.

use std::mem::offset_of;

use libc::socklen_t;

use crate::REQUEST_BYTES_MAX;
use crate::socket::{CONTROL_BYTES, Control, NAME_BYTES, NAME_LEN, Name};

/// `struct io_uring_recvmsg_out` (linux/io_uring.h), then name, control message and payload, each at a fixed offset
/// that follows from the lengths given with the receive. The size is not a multiple of 256 bytes, so that the starts of
/// many buffers do not share a few sets of the cache.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Message {
    name_bytes: u32,
    control_bytes: u32,
    payload_bytes: u32,
    flags: u32,
    /// The source.
    pub(super) name: Name,
    /// The local address.
    pub(super) control: Control,
    payload: [u8; REQUEST_BYTES_MAX],
}

/// The length of a message with an empty payload.
pub(super) const MESSAGE_BYTES_MIN: usize = offset_of!(Message, payload);

/// The length of a provided buffer, so that a payload of exactly `REQUEST_BYTES_MAX` bytes fits.
#[expect(clippy::cast_possible_truncation, reason = "checked above the cast")]
pub(super) const MESSAGE_BYTES_MAX: u32 = {
    let bytes = MESSAGE_BYTES_MIN + REQUEST_BYTES_MAX;
    assert!(bytes <= size_of::<Message>() && bytes <= u16::MAX as usize);
    bytes as u32
};

const _: () = {
    assert!(offset_of!(Message, name) == 16);
    assert!(offset_of!(Message, control) == 16 + NAME_BYTES);
    assert!(MESSAGE_BYTES_MIN == 16 + NAME_BYTES + CONTROL_BYTES);
    assert!(!(size_of::<Message>() / 64).is_multiple_of(4));
};

impl Message {
    /// Returns the content. `None` if it exceeded the maximum size of a request.
    pub(super) fn request(&self) -> Option<&[u8]> {
        let truncated = self.flags & libc::MSG_TRUNC.cast_unsigned() != 0;
        if truncated { None } else { self.payload.get(..self.payload_bytes as usize) }
    }

    /// Returns the length of the name that the kernel wrote.
    pub(super) fn name_len(&self) -> socklen_t {
        self.name_bytes.min(NAME_LEN)
    }

    /// Returns the length of the control message that the kernel wrote.
    pub(super) fn control_bytes(&self) -> usize {
        (self.control_bytes as usize).min(CONTROL_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Message {
        /// Returns a message with a fixed name and no control message.
        pub(in super::super) fn sample(payload_bytes: usize, flags: libc::c_int) -> Self {
            let (mut name, flags) = ([0; NAME_BYTES], flags.cast_unsigned());
            name[..2].copy_from_slice(&u16::try_from(libc::AF_INET).unwrap().to_ne_bytes());
            let payload_bytes = u32::try_from(payload_bytes).unwrap();
            let (control, payload) = ([0; CONTROL_BYTES], [7; REQUEST_BYTES_MAX]);
            Self { name_bytes: 16, control_bytes: 0, payload_bytes, flags, name, control, payload }
        }
    }

    #[test]
    fn a_request_has_the_length_of_the_datagram() {
        assert_eq!(Message::sample(0, 0).request(), Some(&[][..]));
        assert_eq!(Message::sample(98, 0).request(), Some(&[7; 98][..]));
        assert_eq!(Message::sample(REQUEST_BYTES_MAX, 0).request(), Some(&[7; REQUEST_BYTES_MAX][..]));
    }

    #[test]
    fn a_longer_datagram_is_not_a_request() {
        assert_eq!(Message::sample(REQUEST_BYTES_MAX, libc::MSG_TRUNC).request(), None);
        assert_eq!(Message::sample(REQUEST_BYTES_MAX + 1, 0).request(), None);
    }
}
