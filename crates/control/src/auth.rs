//! The right to ask the control listener: tokens, roles and rates. Root and the user of the tracker need no token at
//! the socket for the users of this host.
//!
//! Every route belongs to a kind of [`Need`], and the middleware of its router asks for it. A client shows its token in
//! the field Authorization, never in a cookie, which a browser would send on behalf of other pages.

mod rate;
pub(crate) mod tokens;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::rate::Rates;
use self::tokens::{Role, Tokens};
use super::body;
use super::counters::RequestOutcome;
use super::listener::connections::{Connection, Source};
use super::problem::Problem;
use shoal_runtime::lists::Author;
use shoal_runtime::repeated::Repeated;

/// Requests of a token, or of a source without one: the time for each, and how many may come at once.
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);
const REQUESTS_AT_ONCE: u32 = 200;

/// Wrong tokens of a source: the time for each, and how many may come at once. Right ones are always accepted.
const WRONG_TOKEN_INTERVAL: Duration = Duration::from_secs(3);
const WRONG_TOKENS_AT_ONCE: u32 = 20;

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing. Such an endpoint reveals at most the health of the tracker.
    Nothing,
    /// A token of any role, if tokens are configured.
    Read,
    /// A token of the role admin.
    Admin,
    /// A token of the role admin, if tokens are configured: the operator has already written the new values into files.
    Reload,
}

/// The sender of a request, which handlers get as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token, or "anyone".
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// The user of this host that sent the request without a token.
    local_user: Option<u32>,
}

impl Caller {
    /// Returns the author of a change, for the record.
    pub(crate) fn author(&self) -> Author {
        match self.local_user {
            Some(user) => Author::of_user(user),
            None => Author::Token { name: self.name.clone(), address: self.address },
        }
    }
}

/// The tokens, and the rates of their use.
#[derive(Debug)]
pub(super) struct Auth {
    tokens: Arc<Tokens>,
    rates: Mutex<Rates<Client>>,
    wrong: Mutex<(Rates<Source>, Repeated)>,
}

/// The unit whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Client {
    Token(String),
    LocalUser(u32),
    Source(Source),
}

impl Auth {
    pub(super) fn new(tokens: Arc<Tokens>) -> Self {
        Self {
            tokens,
            rates: Mutex::new(Rates::new(REQUEST_INTERVAL, REQUESTS_AT_ONCE)),
            wrong: Mutex::new((Rates::new(WRONG_TOKEN_INTERVAL, WRONG_TOKENS_AT_ONCE), Repeated::default())),
        }
    }

    /// Returns the sender of a request, if it may be answered.
    fn admit(&self, need: Need, headers: &HeaderMap, connection: &Connection) -> Result<Caller, Problem> {
        let address = connection.peer.ip().to_canonical();
        let source = Source::of(address);
        let caller_of = |name: String, role, local_user| Caller { name, role, address, local_user };
        let (caller, client) = if let Some(user) = connection.local_user {
            (caller_of(format!("uid {user}"), Role::Admin, Some(user)), Client::LocalUser(user))
        } else if let Some(caller) = self.identify(headers, address)? {
            (caller.clone(), Client::Token(caller.name))
        } else {
            (caller_of("anyone".to_owned(), Role::Read, None), Client::Source(source))
        };
        let is_open = matches!(client, Client::Source(_));
        let mut rates = self.rates.lock();
        rates.take(client, Instant::now()).map_err(|wait| {
            Problem::later(StatusCode::TOO_MANY_REQUESTS, "too many requests; ask less often", wait)
        })?;
        if need == Need::Admin && is_open {
            return Err(Problem::new(StatusCode::FORBIDDEN, NO_TOKENS));
        }
        if need != Need::Read && !is_open && caller.role != Role::Admin {
            let error = format!("this needs a token of the role admin; {} has the role read", caller.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, error));
        }
        Ok(caller)
    }

    /// Returns the owner of the token of a request, or `None` if no tokens are configured.
    fn identify(&self, headers: &HeaderMap, address: IpAddr) -> Result<Option<Caller>, Problem> {
        let tokens = self.tokens.latest();
        if tokens.is_empty() {
            return Ok(None);
        }
        let shown = bearer(headers).ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, NO_TOKEN_SHOWN))?;
        if let Some((role, name)) = tokens.find(shown) {
            return Ok(Some(Caller { name: name.to_owned(), role, address, local_user: None }));
        }
        let mut wrong = self.wrong.lock();
        let now = Instant::now();
        if let Some(unlogged) = wrong.1.note(now) {
            tracing::warn!(%address, unlogged, "a client of the control listener has shown a wrong token");
        }
        let problem = match wrong.0.take(Source::of(address), now) {
            Ok(()) => Problem::new(StatusCode::UNAUTHORIZED, WRONG_TOKEN),
            Err(wait) => Problem::later(StatusCode::TOO_MANY_REQUESTS, WRONG_TOKEN, wait),
        };
        Err(problem.counted_as(RequestOutcome::WrongToken))
    }
}

/// Answers a request if its sender may send it, and refuses it otherwise.
pub(super) async fn require(
    State((auth, need)): State<(Arc<Auth>, Need)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(connection) = request.extensions().get::<Connection>() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let is_json = body::is_json(request.headers());
    match auth.admit(need, request.headers(), connection) {
        Err(problem) => problem.into_response(),
        // A page of another site cannot send such a request: browsers first ask whether they may send JSON, and get no
        // permission.
        Ok(_) if request.method() == Method::POST && !is_json => {
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, body::NOT_JSON).into_response()
        }
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

const NO_TOKENS: &str = "changes need a token of the role admin, and none is configured; root and the user of the tracker need \
                         none on its host (`shoal ctl` without --url), and `shoal ctl token --role admin --name NAME` makes one and prints the line to add to the file that control.tokens names";

const NO_TOKEN_SHOWN: &str = "this needs a token: send the field \"Authorization: Bearer TOKEN\" (`shoal ctl` takes it \
                              from --token-file or SHOAL_CONTROL_TOKEN)";

const WRONG_TOKEN: &str = "this token is not valid here; `shoal ctl token` makes one and prints the line to add to the \
                           file that control.tokens names";

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_shown_in_one_field() {
        let fields = |values: &[&'static str]| {
            let field = |value: &&'static str| (header::AUTHORIZATION, HeaderValue::from_static(value));
            let mut headers = HeaderMap::new();
            headers.extend(values.iter().map(field));
            headers
        };
        assert_eq!(bearer(&fields(&["Bearer abc"])), Some("abc"));
        assert_eq!(bearer(&fields(&["bEARER   abc"])), Some("abc"));
        for wrong in [&[][..], &["abc"], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer b"]] {
            assert_eq!(bearer(&fields(wrong)), None, "{wrong:?}");
        }
    }
}
