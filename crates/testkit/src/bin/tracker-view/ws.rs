//! Queries over WebTorrent: JSON over WebSockets (RFC 6455), with a connection for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{ANSWER_WAIT, http};

/// RFC 6455, 5.2: the only frame of a text message.
const TEXT: u8 = 0x81;
/// RFC 6455, 5.2: the flag that a mask follows.
const MASKED: u8 = 0x80;
/// RFC 6455, 5.2: the lengths that stand for a length in the next two or eight bytes.
const LENGTH_IN_2: u8 = 126;
const LENGTH_IN_8: u8 = 127;
/// No reply to these requests is longer.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Scrapes a torrent and returns its seeders, completed downloads and leechers.
pub(crate) fn scrape(tracker: SocketAddr, info_hash: &[u8; 20]) -> Result<[u32; 3]> {
    // WebTorrent writes each byte as the character with its number.
    let name: String = info_hash.iter().map(|&byte| char::from(byte)).collect();
    let mut stream = upgrade(tracker)?;
    let request = json!({ "action": "scrape", "info_hash": name }).to_string();
    stream.get_mut().write_all(&text_frame(request.as_bytes())?).context("cannot send")?;
    let reply: Value = serde_json::from_slice(&message(&mut stream)?).context("the reply is not JSON")?;
    ensure!(reply["action"] == "scrape", "a scrape was answered by {reply}");
    let counts = &reply["files"][&name];
    let count = |key: &str| {
        let value = counts[key].as_u64().with_context(|| format!("no {key}: {reply}"))?;
        u32::try_from(value).context("an unexpected count")
    };
    Ok([count("complete")?, count("downloaded")?, count("incomplete")?])
}

/// Opens a WebSocket (RFC 6455, 4.1). The real clients check the tracker's response to the key.
fn upgrade(tracker: SocketAddr) -> Result<BufReader<TcpStream>> {
    let mut stream = http::connect(tracker)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    write!(
        stream,
        "GET /announce HTTP/1.1\r\nHost: {tracker}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dHJhY2tlci12aWV3IG9mIA==\r\n\r\n"
    )?;
    let mut stream = BufReader::new(stream);
    let status = line(&mut stream)?;
    ensure!(status.split(' ').nth(1) == Some("101"), "no upgrade: {status}");
    while !line(&mut stream)?.is_empty() {}
    Ok(stream)
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).context("no whole response")?;
    ensure!(line.ends_with('\n'), "the response is cut off");
    Ok(line.trim_end().to_owned())
}

/// Encodes a text frame (RFC 6455, 5.2 and 5.3). The length takes as few bytes as possible, and the payload is masked.
fn text_frame(text: &[u8]) -> Result<Vec<u8>> {
    let mask: [u8; 4] = fastrand::u32(..).to_be_bytes();
    let mut frame = vec![TEXT];
    match u8::try_from(text.len()) {
        Ok(length) if length < LENGTH_IN_2 => frame.push(MASKED | length),
        _ => {
            frame.push(MASKED | LENGTH_IN_2);
            frame.extend(u16::try_from(text.len()).context("the request is too long")?.to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(text.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    Ok(frame)
}

/// Reads the next message, which has to be a single text frame.
fn message(stream: &mut impl Read) -> Result<Vec<u8>> {
    let [first, length] = bytes(stream)?;
    ensure!(first == TEXT, "the frame begins with {first:#x}");
    let length = match length {
        LENGTH_IN_2 => u16::from_be_bytes(bytes(stream)?).into(),
        LENGTH_IN_8 => u64::from_be_bytes(bytes(stream)?),
        short => short.into(),
    };
    if length > MESSAGE_BYTES_MAX {
        bail!("a message of {length} bytes");
    }
    let mut text = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut text).context("the message is cut off")?;
    Ok(text)
}

fn bytes<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).context("no frame")?;
    Ok(bytes)
}
