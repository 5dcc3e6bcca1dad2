//! An order: from the domains to a certificate, by one kind of challenge.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, Problem, RetryPolicy,
};
use shoal_config::AcmeConfig;
use shoal_session::{Challenges, TlsAnswer};

use super::fault::{self, Fault};
use super::issued;

/// How often the certificate authority is asked whether it is done.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(200))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// Maximum time until the domains are validated. An order that is given up before costs nothing.
const VALIDATION_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// How often the certificate of a finalized order is asked for again after a failure, and the pauses between.
const FETCHES_MAX: u32 = 10;
const FETCH_PAUSE: Duration = Duration::from_secs(10);
const FETCH_PAUSE_MAX: Duration = Duration::from_secs(10 * 60);

/// Obtains a certificate by this kind of challenge. Returns the text of its file.
pub(super) async fn obtain(
    account: &Account,
    config: &AcmeConfig,
    replaced: Option<CertificateIdentifier<'static>>,
    kind: &ChallengeType,
    challenges: &Challenges,
) -> Result<String, Fault> {
    let names = config.domains.iter().map(|domain| Identifier::Dns(domain.as_str().to_owned()));
    let identifiers: Vec<Identifier> = names.collect();
    let new = || {
        let new = NewOrder::new(&identifiers);
        config.profile.iter().fold(new, |new, profile| new.profile(profile.as_str()))
    };
    let replacement = match replaced {
        Some(replaced) => match account.new_order(&new().replaces(replaced)).await {
            Ok(order) => Some(order),
            // A certificate that was replaced already cannot be replaced again.
            Err(Error::Api(problem)) if !may_pass(&problem) => None,
            Err(Error::Unsupported(_)) => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let order = match replacement {
        Some(order) => Ok(order),
        None => account.new_order(&new()).await,
    };
    let mut order = order?;
    if order.state().authorizations.len() > config.domains.len() {
        // Each takes requests.
        return Err(Fault::Away("its order has more authorizations than acme.domains has names".to_owned()));
    }
    let outcome = complete(&mut order, config, kind, challenges).await;
    // Only an answer needs a certificate, which might not be made.
    let _is_empty = challenges.replace_tls(&[]);
    outcome
}

/// Returns whether a request is refused for a reason that may pass by itself, and that others have as well: a limit, a fault
/// of the server, or an old nonce.
fn may_pass(problem: &Problem) -> bool {
    problem.status.is_some_and(|status| status == 429 || status >= 500) || fault::kind(problem) == "badNonce"
}

async fn complete(
    order: &mut Order,
    config: &AcmeConfig,
    kind: &ChallengeType,
    challenges: &Challenges,
) -> Result<String, Fault> {
    let validated = tokio::time::timeout(VALIDATION_TIME_MAX, validate(order, kind, challenges)).await;
    validated.unwrap_or_else(|_| {
        let time_max_s = VALIDATION_TIME_MAX.as_secs();
        Err(Fault::Away(format!("it has not validated acme.domains within {time_max_s} s")))
    })?;
    let key = order.finalize().await?;
    let chain = fetch(order).await?;
    Ok(issued::text(config, &key, &chain))
}

/// Returns the chain of a finalized order. The certificate may be issued already, and without its key, which only the caller
/// has, it would be lost.
async fn fetch(order: &mut Order) -> Result<String, Fault> {
    let mut failures = 0;
    loop {
        let error = match order.poll_certificate(&POLLS).await {
            Ok(chain) => return Ok(chain),
            Err(error) => error,
        };
        failures += 1;
        let is_refused = matches!(&error, Error::Api(problem) if !may_pass(problem));
        let state = order.state();
        let is_over = is_refused || state.error.is_some() || state.status == OrderStatus::Invalid;
        if is_over || failures >= FETCHES_MAX {
            return Err(error.into());
        }
        tracing::warn!(%error, "the issued certificate did not arrive; it is asked for again");
        let pause = match error {
            Error::Timeout(Some(next)) => {
                next.saturating_duration_since(tokio::time::Instant::now().into_std())
            }
            _ => FETCH_PAUSE,
        };
        tokio::time::sleep(pause.clamp(FETCH_PAUSE, FETCH_PAUSE_MAX)).await;
    }
}

/// Shows the tracker to the certificate authority, until the order is ready.
async fn validate(order: &mut Order, kind: &ChallengeType, challenges: &Challenges) -> Result<(), Fault> {
    if *kind == ChallengeType::TlsAlpn01 {
        let answers = tls_answers(order).await?;
        challenges.replace_tls(&answers).map_err(|error| Fault::Away(error.to_string()))?;
    }
    invite(order, kind).await?;
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(Fault::NotShown(reason(order).await)),
        Err(_) if order.state().status == OrderStatus::Invalid => Err(Fault::NotShown(reason(order).await)),
        Err(error) => Err(error.into()),
    }
}

/// Returns the answers to the TLS-ALPN-01 challenges of all domains that are not authorized yet.
async fn tls_answers(order: &mut Order) -> Result<Vec<TlsAnswer>, Fault> {
    let mut answers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let domain = authorization.identifier().to_string();
        if let Some(challenge) = authorization.challenge(ChallengeType::TlsAlpn01) {
            let digest: Result<[u8; 32], _> = challenge.key_authorization().digest().as_ref().try_into();
            answers.push((domain, digest.expect("SHA-256 has 32 bytes")));
        }
    }
    Ok(answers)
}

/// Asks the certificate authority to validate all domains.
async fn invite(order: &mut Order, kind: &ChallengeType) -> Result<(), Fault> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            return Err(Fault::NotShown(format!("{domain}: it does not offer this kind of challenge")));
        };
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Returns why an order has become invalid: the first failed challenge of each domain.
async fn reason(order: &mut Order) -> String {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let failed = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = failed {
            reasons.push(format!("{}: {}", authorization.identifier(), fault::text(problem)));
        }
    }
    if reasons.is_empty() { "it does not say why".to_owned() } else { reasons.join("; ") }
}
