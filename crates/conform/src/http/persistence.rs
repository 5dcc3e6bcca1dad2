//! How long a connection lasts, and what may be sent over it (RFC 9112, 9).

use std::thread;
use std::time::Duration;

use super::client::{Answer, Client};
use super::reply::{announced, scraped};
use super::request::{get, request};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, STOPPED};
use crate::rules::Client as _;

/// Long enough for a piece to leave by itself, short enough to do it some hundred times.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

/// Connections of people who say nothing.
const IDLE: usize = 20;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "http-connection-serves-many-requests",
        "RFC 9112, 9.3",
        "A connection of HTTP/1.1 stays open after a reply, and serves the next request.",
        |context| serves_many(context, 5),
    )
    .with_info_hashes(1),
    Case::must(
        "http-connection-does-what-the-reply-says",
        "RFC 9112, 9.3 and 9.6",
        "After a reply without Connection: close the connection is kept, after one with it the connection is closed.",
        does_what_it_says,
    )
    .with_info_hashes(1),
    Case::must(
        "http-connection-close-is-obeyed",
        "RFC 9112, 9.6",
        "After a request with Connection: close, however it is written, the tracker answers and closes.",
        close_is_obeyed,
    )
    .with_info_hashes(1),
    Case::should(
        "http-pipelined-requests-are-answered-in-order",
        "RFC 9112, 9.3.2",
        "Requests that are sent together are answered one after the other, in their order.",
        |context| pipelined(context, |line, bytes| line.send(bytes)),
    )
    .with_info_hashes(5),
    Case::should(
        "http-pipelined-requests-may-be-split-anywhere",
        "RFC 9112, 9.3.2",
        "It does not matter where the segments of pipelined requests end.",
        |context| pipelined(context, |line, bytes| send_in_pieces(line, bytes, 97)),
    )
    .with_info_hashes(5),
    Case::must(
        "http-request-in-single-bytes-is-answered",
        "practice: TCP is a stream of bytes",
        "A request that comes byte by byte is answered.",
        |context| in_pieces(context, 1),
    )
    .with_info_hashes(1),
    Case::must(
        "http-request-in-pieces-is-answered",
        "practice: TCP is a stream of bytes",
        "A request that comes in two segments is answered, wherever the first one ends.",
        split_anywhere,
    )
    .with_info_hashes(1),
    Case::should(
        "http-half-closed-connection-is-answered",
        "practice: a client that has said everything may close its side",
        "A request is answered even if its sender has closed its side of the connection.",
        half_closed,
    )
    .with_info_hashes(1),
    Case::must(
        "http-1.0-is-answered",
        "RFC 9110, 2.5; BEP 3, \"Trackers\"",
        "A request of HTTP/1.0 without any header is answered.",
        old_version,
    )
    .with_info_hashes(1),
    Case::must(
        "http-1.0-connection-is-closed",
        "RFC 9112, 9.3",
        "A connection of HTTP/1.0 is closed after the reply, unless both sides have said keep-alive.",
        old_connection_is_closed,
    )
    .with_info_hashes(1),
    Case::should(
        "http-1.0-keep-alive-is-honoured",
        "RFC 9112, 9.3",
        "A connection of HTTP/1.0 with Connection: keep-alive is kept, and the reply says so.",
        old_keep_alive,
    )
    .with_info_hashes(1),
    Case::must(
        "http-idle-connections-hold-up-nobody",
        "practice: anybody can open connections and say nothing",
        "Connections over which nothing or half a request comes do not keep others from being answered.",
        idle_connections,
    )
    .with_info_hashes(1),
    Case::must(
        "http-clients-that-leave-do-no-harm",
        "practice: clients leave whenever they like",
        "Connections that are closed before, within and right after a request do not keep others from being answered.",
        clients_that_leave,
    )
    .with_info_hashes(1),
];

type Line<'c> = super::client::Line<'c>;

fn request_of(client: &Client<'_>, context: &Context<'_>, headers: &[&str]) -> Vec<u8> {
    let path = client.announce_path(&Announce::leecher(context.hash(0), 1001), |parameters| parameters);
    get(context.target, &path, headers)
}

fn serves_many(context: &Context<'_>, count: usize) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    for number in 1..=count {
        line.send(&request_of(&client, context, &[]));
        match line.receive()? {
            Answer::Response(response) => announced(&response).map(drop)?,
            _ => ensure(false, "five replies over a connection", format!("none to request {number}"))?,
        }
    }
    Ok(())
}

fn does_what_it_says(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    line.send(&request_of(&client, context, &[]));
    let first = line.receive_response()?;
    announced(&first)?;
    if !first.keeps_connection() {
        let (is_closed, _) = line.is_closed()?;
        return ensure(is_closed, "a connection that is closed, as the reply says", "it stays open");
    }
    line.send(&request_of(&client, context, &[]));
    let is_answered = matches!(line.receive()?, Answer::Response(_));
    ensure(
        is_answered,
        "a second reply, since the first one does not say Connection: close",
        format!("no second reply behind {}", first.words()),
    )
}

fn close_is_obeyed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for header in
        ["Connection: close", "cOnNeCtIoN:close", "CONNECTION: \t Close \t", "connection: te, close"]
    {
        let mut line = client.connect()?;
        line.send(&request_of(&client, context, &[header]));
        announced(&line.receive_response()?)?;
        let (is_closed, rest) = line.is_closed()?;
        ensure(
            is_closed && rest.is_empty(),
            format!("a connection that is closed after {header:?}"),
            format!("open: {}, and {} more bytes", !is_closed, rest.len()),
        )?;
    }
    Ok(())
}

fn send_in_pieces(line: &mut Line<'_>, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        line.send_untold(piece);
        thread::sleep(BETWEEN_PIECES);
    }
}

/// Scrapes of one torrent each: the reply tells which.
fn pipelined(context: &Context<'_>, send: impl FnOnce(&mut Line<'_>, &[u8])) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(5);
    for &hash in &hashes {
        client.announce(&Announce::leecher(hash, 1001))?;
    }
    let requests: Vec<Vec<u8>> = hashes.iter().map(|&hash| client.scrape_request(&[hash])).collect();
    let mut line = client.connect()?;
    send(&mut line, &requests.concat());
    for (number, hash) in (1..).zip(&hashes) {
        let Answer::Response(response) = line.receive()? else {
            return ensure(false, "five replies to five requests", format!("no reply to request {number}"));
        };
        let files = scraped(&response)?;
        ensure(
            files.len() == 1 && files[0].0 == *hash,
            format!("the reply to request {number} in its place"),
            response.words(),
        )?;
    }
    Ok(())
}

fn in_pieces(context: &Context<'_>, piece: usize) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    send_in_pieces(&mut line, &request_of(&client, context, &[]), piece);
    announced(&line.receive_response()?).map(drop)
}

fn split_anywhere(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let request = request_of(&client, context, &[]);
    for cut in (1..request.len()).step_by(5).chain([request.len() - 1]) {
        // A new connection each time: whether they are kept is another rule.
        let mut line = client.connect()?;
        line.send_untold(&request[..cut]);
        thread::sleep(BETWEEN_PIECES);
        line.send_untold(&request[cut..]);
        announced(&line.receive_response()?)?;
    }
    Ok(())
}

fn half_closed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    line.send(&request_of(&client, context, &[]));
    line.finish_sending();
    announced(&line.receive_response()?).map(drop)
}

/// A request of HTTP/1.0.
fn old_request(client: &Client<'_>, context: &Context<'_>, headers: &str) -> Vec<u8> {
    let path = client.announce_path(&Announce::leecher(context.hash(0), 1001), |parameters| parameters);
    format!("GET {path} HTTP/1.0\r\n{headers}\r\n").into_bytes()
}

fn old_version(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    line.send(&old_request(&client, context, ""));
    announced(&line.receive_response()?).map(drop)
}

fn old_connection_is_closed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    line.send(&old_request(&client, context, ""));
    announced(&line.receive_response()?)?;
    let (is_closed, _) = line.is_closed()?;
    ensure(is_closed, "a connection that is closed after the reply", "it stays open")
}

fn old_keep_alive(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    for number in 1..=2 {
        line.send(&old_request(&client, context, "Connection: Keep-Alive\r\n"));
        let Answer::Response(response) = line.receive()? else {
            return ensure(false, "two replies over a connection", format!("none to request {number}"));
        };
        announced(&response)?;
        ensure(
            response.keeps_connection(),
            "a reply that says Connection: keep-alive, or is of HTTP/1.1",
            response.header("connection").map_or_else(|| "no Connection".to_owned(), str::to_owned),
        )?;
    }
    Ok(())
}

fn idle_connections(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let half = request_of(&client, context, &[]);
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut line = client.connect()?;
        line.send_untold(&half[..if number % 2 == 0 { 0 } else { half.len() / 2 }]);
        idle.push(line);
    }
    let mut line = client.connect()?;
    line.send(&half);
    announced(&line.receive_response()?).map(drop)
}

fn clients_that_leave(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    // One that takes leave, for it may arrive when it likes, after the farewell of this case, too.
    let stopped = Announce::leecher(context.hash(0), 1001).with_event(STOPPED);
    let request_bytes = get(context.target, &client.announce_path(&stopped, |parameters| parameters), &[]);
    for cut in [0, 1, request_bytes.len() / 2, request_bytes.len() - 1, request_bytes.len()] {
        for _ in 0..4 {
            client.connect()?.send_untold(&request_bytes[..cut]);
        }
    }
    let mut line = client.connect()?;
    line.send(&request(
        context.target,
        "GET",
        &client.announce_path(&Announce::leecher(context.hash(0), 1001), |parameters| parameters),
        &[],
    ));
    announced(&line.receive_response()?).map(drop)
}
