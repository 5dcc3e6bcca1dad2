//! The keys of a terminal in raw mode, from the bytes that it sends.

/// A key that does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A printable character.
    Char(char),
    /// A character with Ctrl, as its letter.
    Ctrl(char),
    Escape,
    Tab,
    BackTab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Returns the keys of the bytes of one read. Sequences that are not known, and parts of them, are left out.
pub(super) fn parse(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'\t' => keys.push(Key::Tab),
            0x1b => match tail {
                [b'[' | b'O', sequence @ ..] => {
                    let length = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                    let (sequence, after) = sequence.split_at(length.map_or(sequence.len(), |end| end + 1));
                    keys.extend(named(sequence));
                    rest = after;
                }
                // A character with Alt, which has no meaning here.
                [_, after @ ..] => rest = after,
                [] => keys.push(Key::Escape),
            },
            1..=26 => keys.push(Key::Ctrl(char::from(first - 1 + b'a'))),
            b' '..=b'~' => keys.push(Key::Char(char::from(first))),
            _ => {}
        }
    }
    keys
}

/// Returns the key of a sequence behind `ESC [` or `ESC O` (ECMA-48, and the function keys of the VT220).
fn named(sequence: &[u8]) -> Option<Key> {
    Some(match sequence {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"Z" => Key::BackTab,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let keys = parse(b"q\t\x1b[Z\x1b[A\x1bOB\x1b[5~\x03\x1a\x1b[1;5C\x1bx?\x1b");
        let expected = [
            Key::Char('q'),
            Key::Tab,
            Key::BackTab,
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Ctrl('c'),
            Key::Ctrl('z'),
            Key::Char('?'),
            Key::Escape,
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        for first in 0..=255 {
            for second in 0..=255 {
                parse(&[first, second]);
                parse(&[0x1b, first, second]);
                parse(&[0x1b, b'[', first, second]);
            }
        }
    }
}
