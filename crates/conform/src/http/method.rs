//! Methods and paths (RFC 9110, 9 and 15).

use super::client::{Answer, Client};
use super::reply::announced;
use super::request::{get, request};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;

pub(super) const CASES: &[Case] = &[
    Case::should(
        "http-head-is-answered-like-get",
        "RFC 9110, 9.3.2",
        "HEAD gets the status of GET.",
        head_is_answered,
    ),
    Case::must(
        "http-head-has-no-body",
        "RFC 9110, 9.3.2",
        "The response to HEAD has no body, so that the next response is found.",
        head_has_no_body,
    ),
    Case::should(
        "http-unknown-path-gets-404",
        "RFC 9110, 15.5.5",
        "A path that the tracker does not serve gets status 404 and no bencoded body.",
        unknown_path,
    )
    .with_info_hashes(0),
    Case::should(
        "http-other-methods-get-405-or-501",
        "RFC 9110, 15.5.6 and 15.6.2",
        "Methods other than GET and HEAD get status 405 with Allow, or 501, and add no peer.",
        other_methods,
    ),
];

fn path(client: &Client<'_>, context: &Context<'_>) -> String {
    client.announce_path(&Announce::leecher(context.hash(0), 1001))
}

fn head_is_answered(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&request(context.target, "HEAD", &path(&client, context), &[]));
    match connection.receive_for("HEAD")? {
        Answer::Response(response) => ensure(response.status == 200, "status 200", response.describe()),
        _ => ensure(false, "a response to HEAD", "none"),
    }
}

fn head_has_no_body(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&request(context.target, "HEAD", &path(&client, context), &[]));
    let Answer::Response(response) = connection.receive_for("HEAD")? else { return Ok(()) };
    if response.keeps_connection() {
        let more = connection.drain()?;
        ensure(more.is_empty(), "nothing after the head", format!("{} bytes", more.len()))?;
        connection.send(&get(context.target, &path(&client, context), &[]));
        return match connection.receive()? {
            Answer::Response(next) => announced(&next).map(drop),
            _ => Ok(()),
        };
    }
    let (_, rest) = connection.wait_for_close()?;
    ensure(rest.is_empty(), "nothing after the head", super::response::shown(&rest))
}

fn unknown_path(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for path in ["/shoal-lab-conform-no-such-path", "/announcement-of-nothing", "/"] {
        let response = client.request(&get(context.target, path, &[]))?;
        // Many trackers have a page at the root, or redirect from there.
        let is_right = response.status == 404 || (path == "/" && response.status < 400);
        ensure(is_right, format!("404 for {path}"), response.describe())?;
    }
    Ok(())
}

fn other_methods(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for method in ["POST", "PUT", "DELETE", "BREW"] {
        let mut connection = client.connect()?;
        connection.send(&request(context.target, method, &path(&client, context), &["Content-Length: 0"]));
        let response = connection.receive_response()?;
        let is_right = match response.status {
            405 => response.has_token("allow", "GET"),
            501 => true,
            _ => false,
        };
        ensure(is_right, format!("405 with Allow: GET, or 501, for {method}"), response.describe())?;
    }
    Ok(())
}
