//! Which requests the control listener answers.
//!
//! The listener has no password, and browsers on the same host can reach it on its loopback address. A page that
//! resolves a name of its own to that address (DNS rebinding) could read the metrics. Requests must therefore
//! name a host of ours. Other pages cannot read the responses, but they have no reason to send requests either.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use shoal_config::HostName;

const OTHER_HOST: &str = "this listener does not serve that host name: use an IP address or localhost, or add the \
                          name to control.hosts\n";

const OTHER_SITE: &str = "this listener does not serve pages of other sites; open its address directly\n";

/// Answers a request or refuses it. Browsers neither cache the response nor treat it as a page.
pub(super) async fn admit(State(hosts): State<Arc<[HostName]>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(Authority::as_str);
    // A browser marks requests that a page of another site makes (Fetch Metadata).
    let is_cross_site = request.headers().get_all("sec-fetch-site").iter().any(|site| site == "cross-site");
    let mut response = if !is_ours(&hosts, authority, request.headers()) {
        (StatusCode::MISDIRECTED_REQUEST, OTHER_HOST).into_response()
    } else if is_cross_site {
        (StatusCode::FORBIDDEN, OTHER_SITE).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns whether the host in the target and those in the header fields are ours. A request without a host does
/// not come from a browser: health checks of load balancers omit it.
fn is_ours(hosts: &[HostName], authority: Option<&str>, headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    authority.into_iter().chain(fields).all(|host| is_host(hosts, host))
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
}
