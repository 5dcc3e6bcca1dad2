//! When the next attempt is due, as functions of time and chance.

use std::ops::Range;
use std::time::Duration;

use shoal_session::tls::Certificate;

const HOUR_S: u64 = 3600;

/// The first pause after a failure that may pass by itself, and the longest one. Each failure doubles the pause.
const PAUSE_S: Range<u64> = 60..HOUR_S;

/// The same after a refusal: certificate authorities allow some five per hour and domain.
const PAUSE_OF_REFUSAL_S: Range<u64> = 15 * 60..6 * HOUR_S;

/// Maximum pause that a certificate authority can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * HOUR_S);

/// How often renewal information is asked for, whatever the server says (RFC 9773, 4.3.2).
const LOOK_S: Range<u64> = 60..24 * HOUR_S;

/// Returns when a certificate is to be renewed, in seconds since 1970: at `share` of the window that its issuer suggests,
/// or else a third of its lifetime before its end.
pub(super) fn due_unix_s(certificate: &Certificate, window: Option<Range<u64>>, share: f64) -> u64 {
    let end_s = certificate.not_after_unix_s.unwrap_or(0);
    let last_s = end_s.saturating_sub(lifetime_s(certificate) / 3);
    let Some(Range { start, end }) = window else { return last_s };
    let width = end.saturating_sub(start);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a positive time, whose last digits do not count"
    )]
    let offset = (width as f64 * share) as u64;
    // A window after the end would let the certificate expire.
    (start + offset).min(end_s.saturating_sub(lifetime_s(certificate) / 10))
}

fn lifetime_s(certificate: &Certificate) -> u64 {
    let Certificate { not_before_unix_s, not_after_unix_s, .. } = certificate;
    not_after_unix_s.unwrap_or(0).saturating_sub(not_before_unix_s.unwrap_or(0))
}

/// Returns the time until the next look at a certificate that is due in `due_in_s` seconds.
pub(super) fn look_in(due_in_s: u64, retry_after: Option<Duration>) -> Duration {
    let look_s = retry_after.map_or(LOOK_S.end, |time| time.as_secs()).clamp(LOOK_S.start, LOOK_S.end);
    Duration::from_secs(due_in_s.clamp(1, look_s))
}

/// Returns the time until the next look after a renewal. An issuer whose windows are always over thus gets one order a day.
pub(super) fn look_after_renewal(certificate: &Certificate) -> Duration {
    Duration::from_secs((lifetime_s(certificate) / 3).clamp(LOOK_S.start, LOOK_S.end))
}

/// Returns the pause after a number of failures in a row, at least as long as the certificate authority asked for.
/// `chance` is from 0 to 1.
pub(super) fn pause(failures: u32, is_refusal: bool, retry_after: Duration, chance: f64) -> Duration {
    let limits = if is_refusal { PAUSE_OF_REFUSAL_S } else { PAUSE_S };
    let doubled = limits.start.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let pause = Duration::from_secs(doubled.min(limits.end));
    // Trackers that failed together do not come back together.
    pause.mul_f64(0.75 + chance / 2.0).max(obeyed(retry_after))
}

/// Returns the pause that is obeyed if a certificate authority asks for this one.
pub(super) fn obeyed(retry_after: Duration) -> Duration {
    retry_after.min(RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    fn certificate(days: u64) -> Certificate {
        let (not_before_unix_s, not_after_unix_s) = (Some(1_000_000), Some(1_000_000 + days * DAY_S));
        Certificate { file: "acme.pem".into(), names: Vec::new(), not_before_unix_s, not_after_unix_s }
    }

    #[test]
    fn a_certificate_is_renewed_in_its_window_or_a_third_before_its_end() {
        let of = |window, share| due_unix_s(&certificate(90), window, share) - 1_000_000;
        assert_eq!(of(None, 0.5), 60 * DAY_S);
        let window = 1_000_000 + 50 * DAY_S..1_000_000 + 54 * DAY_S;
        assert_eq!(of(Some(window.clone()), 0.0), 50 * DAY_S);
        assert_eq!(of(Some(window), 0.5), 52 * DAY_S);
        // A window in the past means at once, and one after the end is not waited for.
        assert_eq!(due_unix_s(&certificate(90), Some(0..10), 0.9), 9);
        assert_eq!(of(Some(u64::MAX - 9..u64::MAX), 0.0), 81 * DAY_S);
    }

    #[test]
    fn pauses_grow_to_a_limit_and_obey_the_server() {
        let of = |failures, is_refusal| pause(failures, is_refusal, Duration::ZERO, 0.5).as_secs();
        assert_eq!([1, 2, 3, 7, 100].map(|failures| of(failures, false)), [60, 120, 240, 3600, 3600]);
        assert_eq!([1, 2, 100].map(|failures| of(failures, true)), [900, 1800, 21_600]);
        assert_eq!(pause(1, false, Duration::ZERO, 0.0).as_secs(), 45);
        assert_eq!(pause(1, false, Duration::from_secs(7200), 0.0).as_secs(), 7200);
        assert_eq!(pause(1, false, Duration::MAX, 0.0).as_secs(), DAY_S);
    }

    #[test]
    fn a_short_lived_certificate_is_looked_at_in_time() {
        assert_eq!(look_in(30, None).as_secs(), 30);
        assert_eq!(look_in(0, None).as_secs(), 1);
        assert_eq!(look_in(30 * DAY_S, Some(Duration::from_secs(6 * HOUR_S))).as_secs(), 6 * HOUR_S);
        assert_eq!(look_in(30 * DAY_S, Some(Duration::ZERO)).as_secs(), 60);
        assert_eq!(look_in(30 * DAY_S, None).as_secs(), DAY_S);
        assert_eq!(look_after_renewal(&certificate(90)).as_secs(), DAY_S);
    }
}
