//! Request heads: which are accepted, which are refused, and that the tracker always responds (RFC 9112, 2 to 6).

use super::client::{Answer, Client};
use super::reply::announced;
use super::request::{Parameters, announce_path, get};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

/// More bytes than any request of a client has.
const OVERSIZE: usize = 64 << 10;

/// More bytes than a tracker should read of a head that never ends.
const ENDLESS: usize = 32 << 20;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-header-names-have-any-case",
        "RFC 9110, 5.1",
        "Header names in upper, lower and mixed case, and any white space around values, are read.",
        names_have_any_case,
    ),
    Case::should(
        "http-unknown-headers-are-ignored",
        "RFC 9110, 5.1",
        "Additional headers of browsers and proxies do not matter.",
        |context| {
            let headers = [
                "Accept: */*",
                "Accept-Encoding: identity",
                "Cookie: a=b; c=d",
                "TE:",
                "X-Empty: ",
                "Range: bytes=0-",
            ];
            is_answered(context, &headers.map(str::to_owned))
        },
    ),
    Case::should(
        "http-100-headers-are-read",
        "practice: proxies add some, and a limit of 100 is usual",
        "A request with a hundred headers is answered.",
        |context| {
            is_answered(context, &(2..100).map(|number| format!("X-{number}: {number}")).collect::<Vec<_>>())
        },
    ),
    Case::should(
        "http-long-headers-are-read",
        "practice: cookies and user agents can have several kilobytes",
        "A request with a header of four kilobytes is answered.",
        |context| is_answered(context, &[format!("User-Agent: {}", "x".repeat(4096))]),
    ),
    Case::should(
        "http-oversize-head-is-refused",
        "RFC 9110, 5.4 and 15.5.15; RFC 6585, 5",
        "A request target or a header of 64 KiB gets a 4xx status, or at least a close.",
        oversize_head_is_refused,
    )
    .with_info_hashes(0),
    Case::must(
        "http-endless-head-is-cut-off",
        "practice: any client can send a head that never ends",
        "The tracker stops reading a head that never ends.",
        endless_head_is_cut_off,
    )
    .with_info_hashes(0),
    Case::should(
        "http-two-hosts-get-400",
        "RFC 9112, 3.2",
        "A request with two Host fields gets status 400.",
        two_hosts_get_400,
    ),
    Case::should(
        "http-later-minor-version-is-read",
        "RFC 9110, 2.5",
        "An HTTP/1.2 request is answered like an HTTP/1.1 request.",
        later_minor_version_is_read,
    ),
    Case::should(
        "http-response-has-a-date",
        "RFC 9110, 6.6.1",
        "A response has a Date, in the form of RFC 9110, 5.6.7.",
        response_has_a_date,
    ),
    Case::should(
        "http-malformed-request-gets-400-and-a-close",
        "RFC 9112, 3 and 9.6",
        "Input that is not an HTTP/1 request gets status 400, or 505 for another version, and the connection is closed.",
        malformed_gets_400,
    )
    .with_info_hashes(0),
    Case::must(
        "http-malformed-request-is-not-met-by-silence",
        "practice: the client would wait",
        "Input that is not an HTTP/1 request is answered, or the connection is closed.",
        malformed_is_not_met_by_silence,
    )
    .with_info_hashes(0),
    Case::must(
        "http-garbage-does-not-end-the-service",
        "practice: any client can send anything",
        "After connections with random bytes, the tracker answers as before.",
        garbage,
    ),
    Case::must(
        "http-mangled-requests-do-not-end-the-service",
        "practice: any client can send anything",
        "After valid requests with some bytes changed, the tracker answers as before.",
        mangled,
    ),
    Case::should(
        "http-absolute-target-is-read",
        "RFC 9112, 3.2.2",
        "A request target that is a whole URL, as clients send to proxies, is answered.",
        absolute_target,
    ),
    Case::should(
        "http-empty-line-before-a-request-is-ignored",
        "RFC 9112, 2.2",
        "An empty line before the request line is ignored.",
        empty_line,
    ),
    Case::should(
        "http-body-of-get-is-answered",
        "RFC 9110, 9.3.1; RFC 9112, 6",
        "A GET with a body, which has no meaning, is answered or refused, but not ignored.",
        body_is_answered,
    ),
    Case::must(
        "http-body-is-no-request",
        "RFC 9112, 6.3 and 11.2",
        "The body of a request, with a length or in chunks, is not treated as another request.",
        body_is_no_request,
    ),
];

fn two_hosts_get_400(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let request = client.announce_request(&Announce::leecher(context.hash(0), 1001));
    let end = request.len() - 2;
    let response = client.request(&[&request[..end], b"Host: other.example\r\n\r\n"].concat())?;
    ensure(response.status == 400, "status 400", response.describe())
}

fn later_minor_version_is_read(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let path = client.announce_path(&Announce::leecher(context.hash(0), 1001));
    let head = format!("GET {path} HTTP/1.2\r\nHost: {}\r\n\r\n", context.target.host);
    announced(&client.request(head.as_bytes())?).map(drop)
}

fn response_has_a_date(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let announce = client.announce_request(&Announce::leecher(context.hash(0), 1001));
    let response = client.request(&announce)?;
    let date = response.header("date").unwrap_or("no Date");
    let has_form = date.len() == 29 && date.ends_with(" GMT") && date.as_bytes()[3..5] == *b", ";
    ensure(has_form, "a Date such as Sun, 06 Nov 1994 08:49:37 GMT", date)
}

const MALFORMED: [&[u8]; 10] = [
    b"hello\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /announce\r\nHost: x\r\n\r\n",
    b"GET /announce HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /announce FTP/1.1\r\nHost: x\r\n\r\n",
    b"G\x00T /announce HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /announce HTTP/1.1\r\nno header\r\n\r\n",
    b"GET /announce HTTP/1.1\r\n: no name\r\n\r\n",
    b"GET /announce HTTP/1.1\r\nHost : x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
];

fn peer(context: &Context<'_>) -> Announce {
    Announce::leecher(context.hash(0), 1001)
}

fn is_answered(context: &Context<'_>, headers: &[String]) -> Checked {
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    Client::new(context).announce_with_headers(&peer(context), &headers).map(drop)
}

fn names_have_any_case(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let path = client.announce_path(&peer(context));
    let host = &context.target.host;
    for head in [
        format!("HOST: {host}\r\nUSER-AGENT: X\r\nACCEPT: */*"),
        format!("host:{host}\r\nuser-agent:x\r\naccept:*/*"),
        format!("hOsT: \t {host} \t\r\nAcCePt-EnCoDiNg:\tidentity"),
    ] {
        announced(&client.request(format!("GET {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes())?)?;
    }
    Ok(())
}

fn oversize_head_is_refused(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let long = "x".repeat(OVERSIZE);
    let path = announce_path(context.target, &Parameters::default());
    for request in [
        get(context.target, &format!("{path}?trackerid={long}"), &[]),
        get(context.target, &path, &[&format!("X-Long: {long}")]),
        get(context.target, &path, &["X-Many: 1\r\n".repeat(OVERSIZE / 11).trim_end()]),
    ] {
        let mut connection = client.connect()?;
        connection.send_untraced(&request);
        match connection.receive()? {
            Answer::Response(response) => {
                ensure((400..500).contains(&response.status), "a status of 4xx", response.describe())?;
            }
            // Closing with unread input resets the connection, and the response is lost.
            Answer::Closed => {}
            Answer::Silence => {
                ensure(false, "a status of 4xx", "no response, and the connection stays open")?
            }
        }
    }
    Ok(())
}

fn endless_head_is_cut_off(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    let path = announce_path(context.target, &Parameters::default());
    connection.send_untraced(format!("GET {path} HTTP/1.1\r\nHost: x\r\n").as_bytes());
    let headers = "X-Endless: 0123456789\r\n".repeat(10_000);
    let pieces = ENDLESS / headers.len();
    // After its response, the tracker may go on reading for a while, so that a reset does not lose the response.
    let is_cut_off = (0..pieces).any(|_| !connection.try_send(headers.as_bytes()) || connection.has_input());
    ensure(is_cut_off, "a tracker that stops reading", format!("{} MiB accepted", ENDLESS >> 20))
}

fn malformed_gets_400(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for request in MALFORMED {
        let mut connection = client.connect()?;
        connection.send(request);
        let response = connection.receive_response()?;
        ensure(
            matches!(response.status, 400 | 501 | 505),
            format!("400 for {}", request.escape_ascii()),
            response.describe(),
        )?;
        let (is_closed, _) = connection.wait_for_close()?;
        ensure(is_closed, format!("a close after {}", request.escape_ascii()), "the connection stays open")?;
    }
    Ok(())
}

fn malformed_is_not_met_by_silence(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for request in MALFORMED {
        let mut connection = client.connect()?;
        connection.send(request);
        // Another rule checks the response.
        let is_silent = connection.receive().is_ok_and(|answer| answer == Answer::Silence);
        ensure(
            !is_silent,
            format!("a response or a close after {}", request.escape_ascii()),
            "no response, and the connection stays open",
        )?;
    }
    Ok(())
}

fn garbage(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let sizes = [1, 2, 10, 100, 1000, 10_000];
    for size in sizes.into_iter().cycle().take(30) {
        let mut connection = client.connect()?;
        connection.send_untraced(&context.random_bytes(size));
        connection.drain().ok();
    }
    client.announce(&peer(context)).map(drop)
}

fn mangled(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let request = client.announce_request(&peer(context));
    let text = String::from_utf8_lossy(&request);
    let end_of_port = text.find("&uploaded").unwrap_or(text.len());
    let peer_range = text.find('?').unwrap_or_default()..end_of_port + 2;
    for round in 0..100_usize {
        let mut bytes = request.clone();
        for random in context.random_bytes(3 * (1 + round % 8)).chunks_exact(3) {
            let at = (usize::from(random[0]) << 8 | usize::from(random[1])) % bytes.len();
            // Another torrent or port would be another peer, which would never leave.
            if !peer_range.contains(&at) {
                bytes[at] = random[2];
            }
        }
        let mut connection = client.connect()?;
        connection.send_untraced(&bytes);
        // Many of these are still announces. Without waiting, one might be served after the peers of this case have left.
        if round % 10 != 0 {
            connection.close_write();
        }
        connection.drain().ok();
    }
    client.announce(&peer(context)).map(drop)
}

fn absolute_target(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let path = client.announce_path(&peer(context));
    let host = &context.target.host;
    let target = format!("http://{host}{path}");
    announced(&client.request(&get(context.target, &target, &[]))?).map(drop)
}

fn empty_line(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&[b"\r\n", &client.announce_request(&peer(context))[..]].concat());
    announced(&connection.receive_response()?).map(drop)
}

fn body_is_answered(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let path = client.announce_path(&peer(context));
    for (header, body) in [
        ("Content-Length: 0", ""),
        ("Content-Length: 5", "hello"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let mut connection = client.connect()?;
        connection.send(&[&get(context.target, &path, &[header])[..], body.as_bytes()].concat());
        let response = connection.receive_response()?;
        let is_right =
            response.status == 200 || (400..500).contains(&response.status) || response.status == 501;
        ensure(is_right, format!("200 or 4xx for a body with {header}"), response.describe())?;
    }
    Ok(())
}

/// As a request, the body would add a leecher.
fn body_is_no_request(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hidden = client.announce_request(&peer(context));
    let path = announce_path(context.target, &Parameters::default());
    let by_length =
        [&get(context.target, &path, &[&format!("Content-Length: {}", hidden.len())])[..], &hidden].concat();
    let chunk = [format!("{:x}\r\n", hidden.len()).as_bytes(), &hidden, b"\r\n0\r\n\r\n"].concat();
    let by_chunks = [&get(context.target, &path, &["Transfer-Encoding: chunked"])[..], &chunk].concat();
    for request in [by_length, by_chunks] {
        let mut connection = client.connect()?;
        connection.send(&request);
        connection.receive().ok();
        connection.drain().ok();
        client.ensure_scraped(context.hash(0), 0, 0, "an empty swarm: the body is not a request")?;
    }
    Ok(())
}
