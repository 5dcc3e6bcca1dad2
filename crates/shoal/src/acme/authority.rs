//! Requests to the certificate authority, with the client and the trust of all other URLs.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use ureq::Agent;
use ureq::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ureq::http::request::Parts;
use ureq::http::{Method, Request, Response};

/// Maximum time for one request.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum size of a response. The largest is a chain of certificates.
const BYTES_MAX: u64 = 1 << 20;

/// Maximum pause that reaches the library, which adds it to the time of day.
const RETRY_AFTER_S_MAX: u64 = 30 * 86_400;

/// A client for one attempt. The certificate authorities that the system trusts are read anew.
pub(super) struct Client {
    agent: Agent,
    retry_after: RetryAfter,
}

/// The longest time for which the server asked to wait, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryAfter(Arc<AtomicU64>);

impl RetryAfter {
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    /// Notes the time of a refusal. An order that is in progress has such a time as well, and the library waits for it.
    fn note(&self, response: &Response<Vec<u8>>) {
        if response.status().is_success() {
            return;
        }
        self.0.fetch_max(retry_after_s(response).unwrap_or(0), Ordering::Relaxed);
    }
}

fn retry_after_s(response: &Response<Vec<u8>>) -> Option<u64> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// Shortens a pause that the library could not add to the time of day: it would panic.
fn limit_retry_after(response: &mut Response<Vec<u8>>) {
    if retry_after_s(response).is_some_and(|seconds| seconds > RETRY_AFTER_S_MAX) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S_MAX));
    }
}

impl Client {
    pub(super) fn new(retry_after: RetryAfter) -> Self {
        let config = Agent::config_builder()
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(TIME_MAX))
            .tls_config(shoal_access::fetch::tls())
            .build();
        Self { agent: config.into(), retry_after }
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (agent, retry_after) = (self.agent.clone(), self.retry_after.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|error| Error::Other(error.into()))?.to_bytes();
            let exchange = tokio::task::spawn_blocking(move || exchange(&agent, parts, &body));
            let response = exchange.await.map_err(|error| Error::Other(error.into()))?;
            let mut response = response.map_err(|error| Error::Other(error.into()))?;
            limit_retry_after(&mut response);
            retry_after.note(&response);
            if is_out_of_order(&response) {
                return Err(Error::Other(format!("it answers with {}", response.status()).into()));
            }
            Ok(response.map(BodyWrapper::from).into())
        })
    }
}

/// Returns whether the answer is the page of a server that is out of order, instead of a problem (RFC 8555, 6.7).
fn is_out_of_order(response: &Response<Vec<u8>>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    response.status().is_server_error() && !kind.starts_with(b"application/problem+json")
}

/// Sends a request, and reads the whole response. Blocks the thread.
fn exchange(agent: &Agent, parts: Parts, body: &[u8]) -> Result<Response<Vec<u8>>, ureq::Error> {
    let response = if parts.method == Method::POST {
        agent.run(Request::from_parts(parts, body))?
    } else {
        agent.run(Request::from_parts(parts, ()))?
    };
    let (parts, body) = response.into_parts();
    let body = body.into_with_config().limit(BYTES_MAX).read_to_vec()?;
    Ok(Response::from_parts(parts, body))
}

/// Returns the reason of a failed request, if that is what an error tells.
pub(super) fn request_fault(error: &Error) -> Option<String> {
    let Error::Other(error) = error else { return None };
    Some(match error.downcast_ref::<ureq::Error>()? {
        ureq::Error::HostNotFound => "the host is not found".to_owned(),
        ureq::Error::Timeout(_) => format!("no answer within {} s", TIME_MAX.as_secs()),
        ureq::Error::Rustls(error) => certificate_fault(error),
        ureq::Error::Io(error) => io_fault(error),
        other => other.to_string(),
    })
}

fn io_fault(error: &io::Error) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    of_tls.map_or_else(|| error.to_string(), certificate_fault)
}

fn certificate_fault(error: &rustls::Error) -> String {
    format!(
        "TLS: {error} (is it this certificate authority? the environment variable SSL_CERT_FILE names the root of a private \
         one)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_no_clock_has_is_shortened() {
        for (text, expected) in [
            ("18446744073709551615", Some(RETRY_AFTER_S_MAX)),
            ("9223372036854775807", Some(RETRY_AFTER_S_MAX)),
            ("7200", Some(7200)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ] {
            let mut response = Response::new(Vec::new());
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(text));
            limit_retry_after(&mut response);
            assert_eq!(retry_after_s(&response), expected, "{text}");
        }
    }

    #[test]
    fn a_page_about_maintenance_is_no_answer_of_acme() {
        for (status, kind, expected) in
            [(503, "text/html", true), (500, "application/problem+json", false), (404, "text/html", false)]
        {
            let response = Response::builder().status(status).header(CONTENT_TYPE, kind).body(Vec::new());
            assert_eq!(is_out_of_order(&response.unwrap()), expected, "{status} {kind}");
        }
    }
}
