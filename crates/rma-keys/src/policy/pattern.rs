//! Patterns for names and identities: `*` is one whole segment, and `**` at the end one or more.
//!
//! A pattern is compared segment by segment and never with parts of one, so no name can be chosen
//! that matches by what it contains.

use core::fmt;

use crate::{
    identity::{IdentityError, SCHEME, SpiffeId},
    name::{NameError, RegionName},
};

/// A pattern of names, or of identities of one trust domain.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pattern(Box<str>);

/// The reason why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A `*` that is only a part of a segment.
    #[error("'*' at octet {at} is a part of a segment, and stands for whole ones")]
    PartOfSegment {
        /// The offset of the segment, in octets.
        at: usize,
    },
    /// A `**` that is not the last segment.
    #[error("'**' at octet {at} is not at the end")]
    NotLast {
        /// Its offset, in octets.
        at: usize,
    },
    /// A `*` in the trust domain.
    #[error("'*' in the trust domain; each domain needs a rule of its own")]
    Domain,
    /// Without its `*`, it would be no name of a region.
    #[error(transparent)]
    Name(NameError),
    /// Without its `*`, it would be no identity.
    #[error(transparent)]
    Identity(IdentityError),
}

impl Pattern {
    /// A pattern for names of regions.
    pub(super) fn of_names(text: &str) -> Result<Self, PatternError> {
        plain(text)?.parse::<RegionName>().map_err(PatternError::Name)?;
        Ok(Self(text.into()))
    }

    /// A pattern for identities, whose trust domain is given.
    pub(super) fn of_identities(text: &str) -> Result<Self, PatternError> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        if rest.split('/').next().is_some_and(|domain| domain.contains('*')) {
            return Err(PatternError::Domain);
        }
        plain(text)?.parse::<SpiffeId>().map_err(PatternError::Identity)?;
        Ok(Self(text.into()))
    }

    /// Whether a text that has no empty segment is meant.
    fn matches_text(&self, text: &str) -> bool {
        let (mut segments, mut pattern) = (text.split('/'), self.0.split('/'));
        loop {
            match (pattern.next(), segments.next()) {
                (None, None) => return true,
                (Some("**"), Some(_)) => return true,
                (Some("*"), Some(_)) => {}
                (Some(wanted), Some(segment)) if wanted == segment => {}
                _ => return false,
            }
        }
    }

    /// Whether this region is meant.
    pub(super) fn matches(&self, name: &RegionName) -> bool {
        self.matches_text(name)
    }

    /// Whether this identity is meant.
    pub(super) fn matches_id(&self, id: &SpiffeId) -> bool {
        self.matches_text(id.as_str())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `text` with each `*` in place of a segment made a plain one, as long as before.
fn plain(text: &str) -> Result<String, PatternError> {
    let count = text.split('/').count();
    let mut at = 0;
    let mut plain = String::with_capacity(text.len());
    for (number, segment) in text.split('/').enumerate() {
        if number > 0 {
            plain.push('/');
        }
        match segment {
            "*" => plain.push('x'),
            "**" if number + 1 == count => plain.push_str("xx"),
            "**" => return Err(PatternError::NotLast { at }),
            _ if segment.contains('*') => return Err(PatternError::PartOfSegment { at }),
            _ => plain.push_str(segment),
        }
        at += segment.len() + 1;
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_segment_and_two_at_the_end_are_any() {
        for (pattern, meant, not) in [
            ("kv/index", &["kv/index"][..], &["kv", "kv/index/0", "kv/indexes", "x/kv/index"][..]),
            ("kv/*", &["kv/index", "kv/..."], &["kv", "kv/index/0", "kvx/index"]),
            ("kv/*/a", &["kv/0/a"], &["kv/a", "kv/0/b", "kv/0/0/a"]),
            ("kv/**", &["kv/a", "kv/a/b/c"], &["kv", "kvx/a"]),
            ("*", &["kv"], &["kv/a"]),
            ("**", &["kv", "kv/a"], &[]),
            ("*/**", &["kv/a", "kv/a/b"], &["kv"]),
        ] {
            let pattern = Pattern::of_names(pattern).unwrap();
            let matches = |name: &&str| pattern.matches(&name.parse().unwrap());
            assert!(meant.iter().all(matches), "{pattern:?}");
            assert!(!not.iter().any(matches), "{pattern:?}");
        }
    }

    #[test]
    fn identities_are_of_the_domain_that_is_named() {
        let pattern = Pattern::of_identities("spiffe://example.org/kv/*").unwrap();
        let matches = |id: &str| pattern.matches_id(&id.parse().unwrap());
        assert!(matches("spiffe://example.org/kv/a"));
        assert!(!matches("spiffe://example.org.evil/kv/a"));
        assert!(!matches("spiffe://evil/example.org/kv/a"));
        assert!(!matches("spiffe://example.org/KV/a"), "case counts");
    }

    #[test]
    fn a_star_where_it_may_not_be_is_refused_by_name() {
        for (bad, says) in [
            ("kv-*", "'*' at octet 0 is a part"),
            ("kv/a*b", "'*' at octet 3 is a part"),
            ("kv/***", "'*' at octet 3 is a part"),
            ("**/kv", "'**' at octet 0 is not at the end"),
            ("kv/**/a", "'**' at octet 3 is not at the end"),
            ("kv/../*", "\"..\" at octet 3"),
            ("kv//*", "\"\" at octet 3"),
            ("KV/*", "'K' at octet 0"),
            ("", "0 octets"),
        ] {
            let error = Pattern::of_names(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad:?}: {error}");
        }
        for (bad, says) in [
            ("spiffe://*/kv", "trust domain"),
            ("spiffe://*.example.org/kv", "trust domain"),
            ("spiffe://example.org/kv/c*", "'*' at octet 24 is a part"),
            ("spiffe://example.org/**/kv", "'**' at octet 21 is not at the end"),
            ("spiffe://example.org", "no path"),
            ("**", "trust domain"),
            ("example.org/kv", "does not begin"),
            ("spiffe://example.org/../*", "\"..\" at octet 21"),
        ] {
            let error = Pattern::of_identities(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad:?}: {error}");
        }
    }
}
