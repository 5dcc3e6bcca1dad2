//! How long a connection stays open, and how requests may be sent over it (RFC 9112, 9).

use std::thread;
use std::time::Duration;

use super::client::{Answer, Client, HttpConnection};
use super::reply::{Strictness, announced, scraped};
use super::request::{get, request};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, STOPPED};
use crate::rules::Client as _;

/// A pause that is long enough to send a piece separately, and short enough to repeat a few hundred times.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

const IDLE: usize = 20;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "http-connection-serves-many-requests",
        "RFC 9112, 9.3",
        "An HTTP/1.1 connection stays open after a reply and serves the next request.",
        serves_many,
    ),
    Case::must(
        "http-connection-does-what-the-reply-says",
        "RFC 9112, 9.3 and 9.6",
        "The connection stays open after a reply without Connection: close, and is closed after a reply with it.",
        does_what_it_says,
    ),
    Case::must(
        "http-connection-close-is-obeyed",
        "RFC 9112, 9.6",
        "After a request with Connection: close, however it is written, the tracker answers and closes.",
        close_is_obeyed,
    ),
    Case::should(
        "http-pipelined-requests-are-answered-in-order",
        "RFC 9112, 9.3.2",
        "Requests that are sent together are answered in order.",
        |context| pipelined(context, |connection, bytes| connection.send(bytes)),
    )
    .with_info_hashes(5),
    Case::should(
        "http-pipelined-requests-may-be-split-anywhere",
        "RFC 9112, 9.3.2",
        "It does not matter where the segments of pipelined requests end.",
        |context| pipelined(context, |connection, bytes| send_in_pieces(connection, bytes, 97)),
    )
    .with_info_hashes(5),
    Case::must(
        "http-request-in-single-bytes-is-answered",
        "practice: TCP is a stream of bytes",
        "A request that arrives byte by byte is answered.",
        in_single_bytes,
    ),
    Case::must(
        "http-request-in-pieces-is-answered",
        "practice: TCP is a stream of bytes",
        "A request that arrives in two segments is answered, wherever the first one ends.",
        split_anywhere,
    ),
    Case::should(
        "http-half-closed-connection-is-answered",
        "practice: a client that has sent everything may close its side",
        "A request is answered even if its sender has closed its side of the connection.",
        half_closed,
    ),
    Case::must(
        "http-1.0-is-answered",
        "RFC 9110, 2.5; BEP 3, \"Trackers\"",
        "An HTTP/1.0 request without any header is answered.",
        old_version,
    ),
    Case::must(
        "http-1.0-connection-is-closed",
        "RFC 9112, 9.3",
        "An HTTP/1.0 connection is closed after the reply unless both sides have sent keep-alive.",
        old_connection_is_closed,
    ),
    Case::should(
        "http-1.0-keep-alive-is-honoured",
        "RFC 9112, 9.3",
        "An HTTP/1.0 connection with Connection: keep-alive stays open, and the reply says so.",
        old_keep_alive,
    ),
    Case::must(
        "http-idle-connections-do-not-block-others",
        "practice: any client can open connections and send nothing",
        "Connections that send nothing or half a request do not block others.",
        idle_connections,
    ),
    Case::must(
        "http-clients-that-leave-do-no-harm",
        "practice: clients leave whenever they like",
        "Connections that are closed before, during and right after a request do not affect others.",
        clients_that_leave,
    ),
];

fn request_of(client: &Client<'_>, context: &Context<'_>, headers: &[&str]) -> Vec<u8> {
    let path = client.announce_path(&Announce::leecher(context.hash(0), 1001));
    get(context.target, &path, headers)
}

fn serves_many(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    for number in 1..=5 {
        connection.send(&request_of(&client, context, &[]));
        match connection.receive()? {
            Answer::Response(response) => announced(&response).map(drop)?,
            _ => ensure(false, "five replies over a connection", format!("none to request {number}"))?,
        }
    }
    Ok(())
}

fn does_what_it_says(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&request_of(&client, context, &[]));
    let first = connection.receive_response()?;
    announced(&first)?;
    if !first.keeps_connection() {
        let (is_closed, _) = connection.wait_for_close()?;
        return ensure(is_closed, "a connection that is closed, as the reply says", "it stays open");
    }
    connection.send(&request_of(&client, context, &[]));
    let is_answered = matches!(connection.receive()?, Answer::Response(_));
    ensure(
        is_answered,
        "a second reply, since the first one has no Connection: close",
        format!("no second reply after {}", first.describe()),
    )
}

fn close_is_obeyed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for header in
        ["Connection: close", "cOnNeCtIoN:close", "CONNECTION: \t Close \t", "connection: te, close"]
    {
        let mut connection = client.connect()?;
        connection.send(&request_of(&client, context, &[header]));
        announced(&connection.receive_response()?)?;
        let (is_closed, rest) = connection.wait_for_close()?;
        ensure(
            is_closed && rest.is_empty(),
            format!("a connection that is closed after {header:?}"),
            format!("open: {}, and {} more bytes", !is_closed, rest.len()),
        )?;
    }
    Ok(())
}

fn send_in_pieces(connection: &mut HttpConnection<'_>, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        connection.send_untraced(piece);
        thread::sleep(BETWEEN_PIECES);
    }
}

/// Pipelines scrapes of one torrent each, so that each reply identifies its request.
fn pipelined(context: &Context<'_>, send: impl FnOnce(&mut HttpConnection<'_>, &[u8])) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(5);
    for &hash in &hashes {
        client.announce(&Announce::leecher(hash, 1001))?;
    }
    let requests: Vec<Vec<u8>> = hashes.iter().map(|&hash| client.scrape_request(&[hash])).collect();
    let mut connection = client.connect()?;
    send(&mut connection, &requests.concat());
    for (number, hash) in (1..).zip(&hashes) {
        let Answer::Response(response) = connection.receive()? else {
            return ensure(false, "five replies to five requests", format!("no reply to request {number}"));
        };
        let files = scraped(&response, Strictness::Lenient)?;
        ensure(
            files.len() == 1 && files[0].0 == *hash,
            format!("the reply to request {number} in order"),
            response.describe(),
        )?;
    }
    Ok(())
}

fn in_single_bytes(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    send_in_pieces(&mut connection, &request_of(&client, context, &[]), 1);
    announced(&connection.receive_response()?).map(drop)
}

fn split_anywhere(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let request = request_of(&client, context, &[]);
    for cut in (1..request.len()).step_by(5).chain([request.len() - 1]) {
        // Each request has a new connection, because another rule checks persistence.
        let mut connection = client.connect()?;
        connection.send_untraced(&request[..cut]);
        thread::sleep(BETWEEN_PIECES);
        connection.send_untraced(&request[cut..]);
        announced(&connection.receive_response()?)?;
    }
    Ok(())
}

fn half_closed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&request_of(&client, context, &[]));
    connection.close_write();
    announced(&connection.receive_response()?).map(drop)
}

fn old_request(client: &Client<'_>, context: &Context<'_>, headers: &str) -> Vec<u8> {
    let path = client.announce_path(&Announce::leecher(context.hash(0), 1001));
    format!("GET {path} HTTP/1.0\r\n{headers}\r\n").into_bytes()
}

fn old_version(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&old_request(&client, context, ""));
    announced(&connection.receive_response()?).map(drop)
}

fn old_connection_is_closed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&old_request(&client, context, ""));
    announced(&connection.receive_response()?)?;
    let (is_closed, _) = connection.wait_for_close()?;
    ensure(is_closed, "a connection that is closed after the reply", "it stays open")
}

fn old_keep_alive(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    for number in 1..=2 {
        connection.send(&old_request(&client, context, "Connection: Keep-Alive\r\n"));
        let Answer::Response(response) = connection.receive()? else {
            return ensure(false, "two replies over a connection", format!("none to request {number}"));
        };
        announced(&response)?;
        ensure(
            response.keeps_connection(),
            "a reply with Connection: keep-alive, or an HTTP/1.1 reply",
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
        let mut connection = client.connect()?;
        connection.send_untraced(&half[..if number % 2 == 0 { 0 } else { half.len() / 2 }]);
        idle.push(connection);
    }
    let mut connection = client.connect()?;
    connection.send(&half);
    announced(&connection.receive_response()?).map(drop)
}

fn clients_that_leave(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    // A stopped event, because it may arrive after the peers of this case have left.
    let stopped = Announce::leecher(context.hash(0), 1001).with_event(STOPPED);
    let request_bytes = get(context.target, &client.announce_path(&stopped), &[]);
    for cut in [0, 1, request_bytes.len() / 2, request_bytes.len() - 1, request_bytes.len()] {
        for _ in 0..4 {
            client.connect()?.send_untraced(&request_bytes[..cut]);
        }
    }
    let mut connection = client.connect()?;
    connection.send(&request(
        context.target,
        "GET",
        &client.announce_path(&Announce::leecher(context.hash(0), 1001)),
        &[],
    ));
    announced(&connection.receive_response()?).map(drop)
}
