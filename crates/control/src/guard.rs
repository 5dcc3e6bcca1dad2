//! Which requests the control listener answers.
//!
//! Browsers on the same host can reach the listener on its loopback address. A page that resolves its own name to that
//! address (DNS rebinding) could read the metrics. So requests must name a host of ours. Other pages cannot read the
//! responses, but have no reason to send requests either: a request from a page must come from this listener's own
//! page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use shoal_config::HostName;

use super::counters::{ControlCounters, RequestOutcome};
use super::problem::Problem;

const OTHER_HOST: &str = "this listener does not serve that host name: use an IP address or localhost, or add the \
                          name to control.hosts";

const OTHER_SITE: &str = "this listener does not serve pages of other sites; open its address directly";

/// Answers a request or refuses it, and counts the outcome. Browsers neither cache the response nor treat it as a page.
pub(super) async fn admit(
    State((hosts, counters)): State<(Arc<[HostName]>, Arc<ControlCounters>)>,
    request: Request,
    next: Next,
) -> Response {
    let authority = request.uri().authority().map(Authority::as_str);
    let mut response = if !is_ours(&hosts, authority, request.headers()) {
        Problem::new(StatusCode::MISDIRECTED_REQUEST, OTHER_HOST).into_response()
    } else if is_of_other_page(request.headers()) {
        let refusal = Problem::new(StatusCode::FORBIDDEN, OTHER_SITE);
        refusal.counted_as(RequestOutcome::OtherPage).into_response()
    } else {
        next.run(request).await
    };
    counters.count(&response);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns whether the host in the target and those in the header fields are ours. A request without a host does not
/// come from a browser: health checks of load balancers omit it.
fn is_ours(hosts: &[HostName], authority: Option<&str>, headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    authority.into_iter().chain(fields).all(|host| is_host(hosts, host))
}

/// Returns whether a foreign page sends the request. Browsers show it in two ways: by the relation of the page's site
/// to ours (Fetch Metadata), in which another port of the same host is the same site; and by the origin of the page, at
/// least if the request could change something.
fn is_of_other_page(headers: &HeaderMap) -> bool {
    let is_other_site =
        headers.get_all("sec-fetch-site").iter().any(|site| site != "same-origin" && site != "none");
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_other_origin = headers.get_all(header::ORIGIN).iter().any(|origin| {
        let origin = origin.as_bytes();
        let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        !rest.zip(host).is_some_and(|(rest, host)| rest.eq_ignore_ascii_case(host))
    });
    is_other_site || is_other_origin
}

fn is_host(hosts: &[HostName], host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|host| host.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_ours_and_names_only_by_configuration() {
        for host in [
            "127.0.0.1:6970",
            "127.0.0.1",
            "192.0.2.1:80",
            "[::1]:6970",
            "[::1]",
            "localhost:6970",
            "LocalHost",
        ] {
            assert!(is_host(&[], host), "{host}");
        }
        for host in [
            "",
            ":6970",
            "evil.example",
            "evil.example:6970",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0x7f.1",
            "a b",
            "127.0.0.1, evil.example",
            "localhost@evil.example",
        ] {
            assert!(!is_host(&[], host), "{host}");
        }
        let config = shoal_config::read(None, [("SHOAL_CONTROL_HOSTS".into(), "tracker.example".into())]);
        let hosts = config.unwrap().control.hosts;
        assert!(is_host(&hosts, "Tracker.example:6970") && !is_host(&hosts, "evil.example"));
    }

    #[test]
    fn every_host_that_a_request_names_has_to_be_ours() {
        let fields = |hosts: &[&'static str]| {
            hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host))).collect::<HeaderMap>()
        };
        assert!(is_ours(&[], None, &fields(&[])));
        assert!(is_ours(&[], Some("127.0.0.1"), &fields(&["localhost"])));
        assert!(!is_ours(&[], Some("evil.example"), &fields(&["localhost"])));
        assert!(!is_ours(&[], Some("localhost"), &fields(&["evil.example"])));
        let mut two = fields(&["localhost"]);
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(!is_ours(&[], None, &two));
    }

    #[test]
    fn requests_of_other_pages_are_recognised_by_site_and_by_origin() {
        let is_other = |fields: &[(&'static str, &'static str)]| {
            let fields = [("host", "localhost:6970")].iter().chain(fields);
            let field = |(name, value): &(&'static str, &'static str)| {
                (axum::http::HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            is_of_other_page(&fields.map(field).collect())
        };
        for fields in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:6970")],
            &[("origin", "https://LOCALHOST:6970")],
        ] {
            assert!(!is_other(fields), "{fields:?}");
        }
        for fields in [
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
            [("origin", "null")],
            [("origin", "http://localhost:3000")],
            [("origin", "http://evil.example")],
            [("origin", "http://localhost:6970.evil.example")],
            [("origin", "file://localhost:6970")],
        ] {
            assert!(is_other(&fields), "{fields:?}");
        }
        let without_host = [(header::ORIGIN, HeaderValue::from_static("http://localhost"))];
        assert!(is_of_other_page(&without_host.into_iter().collect()));
    }
}
