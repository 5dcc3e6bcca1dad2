//! The metrics in the older text format of Prometheus, for tools that do not read OpenMetrics.
//!
//! The samples are the same in both. The older format names a metric like its samples, and has fewer types.

/// The content type of the text format 0.0.4.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts a page of OpenMetrics.
pub(crate) fn convert(openmetrics: &str) -> String {
    let mut plain = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        match split(line) {
            Some(("HELP", name, text)) => help = Some((name, text)),
            Some(("TYPE", name, kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                if let Some((_, text)) = help.take().filter(|(described, _)| *described == name) {
                    plain.push_str(&format!("# HELP {name}{suffix} {text}\n"));
                }
                plain.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            // Units are parts of the names.
            _ if line.starts_with('#') => {}
            _ => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    plain
}

fn split(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_names_the_samples() {
        let openmetrics = "\
# HELP a_requests Requests.
# TYPE a_requests counter
a_requests_total{kind=\"x # y\"} 1
# HELP a_age_seconds Age.
# TYPE a_age_seconds gauge
# UNIT a_age_seconds seconds
a_age_seconds 0.5
# HELP a_build Version.
# TYPE a_build info
a_build_info{version=\"1\"} 1
# EOF
";
        let plain = "\
# HELP a_requests_total Requests.
# TYPE a_requests_total counter
a_requests_total{kind=\"x # y\"} 1
# HELP a_age_seconds Age.
# TYPE a_age_seconds gauge
a_age_seconds 0.5
# HELP a_build_info Version.
# TYPE a_build_info gauge
a_build_info{version=\"1\"} 1
";
        assert_eq!(convert(openmetrics), plain);
    }
}
