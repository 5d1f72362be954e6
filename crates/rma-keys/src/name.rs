//! Names of regions, as clients and policies say them.
//!
//! A name is a path of segments, such as `kv/values`. Invariant of [`RegionName`]: one to
//! [`NAME_LEN_MAX`] octets of `a` to `z`, digits, `.`, `_`, `-` and `/`; no segment is empty, `.`
//! or `..`. So a name never needs escaping in a log, has one spelling, and does not climb.

use core::{fmt, ops::Deref, str::FromStr};

use crate::limits::NAME_LEN_MAX;

/// The name of a region at its service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(Box<str>);

/// The reason why a text names no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Too short or too long.
    #[error("a name of {len} octets; names have 1 to {NAME_LEN_MAX}")]
    Length {
        /// Its length in octets.
        len: usize,
    },
    /// A character that names do not have.
    #[error("character {found:?} at octet {at}; names have a to z, 0 to 9, '.', '_', '-', '/'")]
    Character {
        /// The first such character.
        found: char,
        /// Its offset, in octets.
        at: usize,
    },
    /// A segment that is empty, `.` or `..`.
    #[error("segment {segment:?} at octet {at}; a segment is never empty, '.' or '..'")]
    Segment {
        /// The segment.
        segment: &'static str,
        /// The offset of the segment, in octets.
        at: usize,
    },
}

impl FromStr for RegionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > NAME_LEN_MAX {
            return Err(NameError::Length { len: text.len() });
        }
        let is_known = |it: char| matches!(it, 'a'..='z' | '0'..='9' | '.' | '_' | '-' | '/');
        if let Some((at, found)) = text.char_indices().find(|&(_, it)| !is_known(it)) {
            return Err(NameError::Character { found, at });
        }
        if let Some((segment, at)) = bad_segment(text) {
            return Err(NameError::Segment { segment, at });
        }
        Ok(Self(text.into()))
    }
}

/// The first segment of a path that is empty, `.` or `..`, and where it begins.
pub(crate) fn bad_segment(path: &str) -> Option<(&'static str, usize)> {
    let mut at = 0;
    for segment in path.split('/') {
        if let Some(bad) = ["", ".", ".."].into_iter().find(|&bad| bad == segment) {
            return Some((bad, at));
        }
        at += segment.len() + 1;
    }
    None
}

impl Deref for RegionName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_of_plain_segments() {
        for good in ["a", "kv/index", "kv/a.b_c-d/0", "...", "a..b", &"x".repeat(255)] {
            assert_eq!(&*good.parse::<RegionName>().unwrap(), good);
        }
        for (bad, says) in [
            ("", "0 octets"),
            (&"x".repeat(256), "256 octets"),
            ("Kv", "'K' at octet 0"),
            ("a%2f", "'%' at octet 1"),
            ("a\n", "'\\n' at octet 1"),
            ("kv*", "'*' at octet 2"),
            ("a\u{e9}", "at octet 1"),
            ("kv/../index", "\"..\" at octet 3"),
            ("..", "\"..\" at octet 0"),
            ("kv/./a", "\".\" at octet 3"),
            ("/kv", "\"\" at octet 0"),
            ("kv/", "\"\" at octet 3"),
            ("kv//a", "\"\" at octet 3"),
        ] {
            let error = bad.parse::<RegionName>().unwrap_err().to_string();
            assert!(error.contains(says), "{bad:?}: {error}");
        }
    }
}
