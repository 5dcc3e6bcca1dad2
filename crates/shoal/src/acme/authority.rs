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
use ureq::http::header::RETRY_AFTER;
use ureq::http::request::Parts;
use ureq::http::{Method, Request, Response};

/// Maximum time for one request.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum size of a response. The largest is a chain of certificates.
const BYTES_MAX: u64 = 1 << 20;

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
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        self.0.fetch_max(seconds.unwrap_or(0), Ordering::Relaxed);
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
            let response = response.map_err(|error| Error::Other(error.into()))?;
            retry_after.note(&response);
            Ok(response.map(BodyWrapper::from).into())
        })
    }
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
