//! Suggestions for misspelt names.

/// Returns the candidate nearest to `name`, if one is near enough for a useful suggestion.
pub(crate) fn nearest<'n>(name: &str, candidates: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distance_max = 1 + name.len() / 4;
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_its_name_and_nonsense_finds_none() {
        let names = ["listen", "io", "receive_buffer", "send_buffer"];
        assert_eq!(nearest("lisen", names.into_iter()), Some("listen"));
        assert_eq!(nearest("recieve_bufer", names.into_iter()), Some("receive_buffer"));
        assert_eq!(nearest("port", names.into_iter()), None);
    }
}
