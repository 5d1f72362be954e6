//! Texts of the kernel's files, and names for a shell.

use std::collections::BTreeSet;

/// The highest number of a core.
const CORE_MAX: usize = 1 << 13;

/// A list of cores as the kernel writes it, `0-3,8`; empty if it is none.
pub(crate) fn cores(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < CORE_MAX).then_some(first..=last)
    };
    // Each once, however often a text names it.
    text.split(',').filter_map(range).flatten().collect::<BTreeSet<_>>().into_iter().collect()
}

/// A word as a shell takes it: in quotes if it has anything else than letters, digits, and a few
/// signs that mean nothing.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:=%@+,".contains(it);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_and_nonsense_is_none() {
        assert_eq!(cores("0-2,5\n"), [0, 1, 2, 5]);
        for nonsense in ["", "a", "5-1", "0-99999999999999999999", "1-2-3", "-1", "0-99999"] {
            assert!(cores(nonsense).is_empty(), "{nonsense}");
        }
    }

    #[test]
    fn a_name_with_quotes_is_one_word() {
        assert_eq!(quoted("eth1.10"), "eth1.10");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's$(x)"), r"'it'\''s$(x)'");
    }
}
