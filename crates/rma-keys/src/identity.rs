//! The identity of a peer: a SPIFFE ID, `spiffe://domain/path`.
//!
//! Read strictly, by the rules of the SPIFFE-ID standard: lower-case scheme and domain, no port, no
//! user, no query, no fragment, nothing escaped. Two spellings of one identity do not exist.
//! Whether a certificate proves it is not asked here.

use core::{fmt, str::FromStr};

use crate::{
    limits::{DOMAIN_LEN_MAX, IDENTITY_LEN_MAX},
    name::bad_segment,
};

/// The scheme that all identities begin with.
pub(crate) const SCHEME: &str = "spiffe://";

/// An identity: a trust domain, and a path in it that names a workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    text: Box<str>,
    /// The offset of the path in `text`.
    path: usize,
}

/// The reason why a text is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Longer than SPIFFE allows.
    #[error("an identity of {len} octets; SPIFFE allows {IDENTITY_LEN_MAX}")]
    Length {
        /// Its length in octets.
        len: usize,
    },
    /// Another scheme, or none.
    #[error("it does not begin with {SCHEME:?}, in lower case")]
    Scheme,
    /// A trust domain that is empty or too long.
    #[error("a trust domain of {len} octets; they have 1 to {DOMAIN_LEN_MAX}")]
    DomainLength {
        /// Its length in octets.
        len: usize,
    },
    /// A character that trust domains do not have: a port and a user are refused by theirs.
    #[error("character {found:?} at octet {at}; trust domains have a to z, 0 to 9, '.', '_', '-'")]
    DomainCharacter {
        /// The first such character.
        found: char,
        /// Its offset, in octets.
        at: usize,
    },
    /// It names a trust domain and nobody in it.
    #[error(
        "it has no path, so it names a trust domain and no workload in it; add one, as in \
         spiffe://example.org/server"
    )]
    NoPath,
    /// A character that paths do not have: queries and what is escaped are refused by theirs.
    #[error("character {found:?} at octet {at}; paths have letters, digits, '.', '_', '-', '/'")]
    PathCharacter {
        /// The first such character.
        found: char,
        /// Its offset, in octets.
        at: usize,
    },
    /// A segment of the path that is empty, `.` or `..`.
    #[error("segment {segment:?} at octet {at}; a segment is never empty, '.' or '..'")]
    Segment {
        /// The segment.
        segment: &'static str,
        /// The offset of the segment, in octets.
        at: usize,
    },
}

impl SpiffeId {
    /// The whole URI.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The trust domain: whose root certificates may prove this identity.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.text[SCHEME.len()..self.path - 1]
    }

    /// The path, without the slash that it begins with.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.text[self.path..]
    }
}

impl FromStr for SpiffeId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        if text.len() > IDENTITY_LEN_MAX {
            return Err(IdentityError::Length { len: text.len() });
        }
        let rest = text.strip_prefix(SCHEME).ok_or(IdentityError::Scheme)?;
        let domain = rest.split_once('/').map_or(rest, |(domain, _)| domain);
        if let Some((at, found)) = stranger(domain, |it| it.is_ascii_lowercase()) {
            return Err(IdentityError::DomainCharacter { found, at: SCHEME.len() + at });
        }
        if domain.is_empty() || domain.len() > DOMAIN_LEN_MAX {
            return Err(IdentityError::DomainLength { len: domain.len() });
        }
        let path = SCHEME.len() + domain.len() + 1;
        let rest = text.get(path..).ok_or(IdentityError::NoPath)?;
        if let Some((at, found)) = stranger(rest, |it| it.is_ascii_alphabetic() || it == '/') {
            return Err(IdentityError::PathCharacter { found, at: path + at });
        }
        if let Some((segment, at)) = bad_segment(rest) {
            return Err(IdentityError::Segment { segment, at: path + at });
        }
        Ok(Self { text: text.into(), path })
    }
}

/// The first character that is neither a digit nor one of `._-`, nor known otherwise.
fn stranger(text: &str, is_known: impl Fn(char) -> bool) -> Option<(usize, char)> {
    let is_plain = |it| matches!(it, '0'..='9' | '.' | '_' | '-') || is_known(it);
    text.char_indices().find(|&(_, it)| !is_plain(it))
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_a_domain_and_a_path() {
        let id: SpiffeId = "spiffe://example.org/kv/Server_1".parse().unwrap();
        assert_eq!((id.domain(), id.path()), ("example.org", "kv/Server_1"));
        assert_eq!(id.to_string(), "spiffe://example.org/kv/Server_1");
        let longest = format!("spiffe://{}/{}", "d".repeat(255), "p".repeat(2048 - 255 - 10));
        assert_eq!(longest.parse::<SpiffeId>().unwrap().as_str().len(), 2048);
    }

    #[test]
    fn whatever_spiffe_forbids_is_refused_by_name() {
        let long = format!("spiffe://a/{}", "p".repeat(2048));
        let domain = format!("spiffe://{}/p", "d".repeat(256));
        for (bad, says) in [
            ("", "does not begin"),
            ("https://example.org/a", "does not begin"),
            ("SPIFFE://example.org/a", "lower case"),
            ("spiffe:///a", "a trust domain of 0 octets"),
            (&domain, "a trust domain of 256 octets"),
            (&long, "of 2059 octets"),
            ("spiffe://Example.org/a", "'E' at octet 9"),
            ("spiffe://example.org:80/a", "':' at octet 20"),
            ("spiffe://me@example.org/a", "'@' at octet 11"),
            ("spiffe://example.org", "no path"),
            ("spiffe://example.org?a", "'?' at octet 20"),
            ("spiffe://example.org/", "\"\" at octet 21"),
            ("spiffe://example.org/a/", "\"\" at octet 23"),
            ("spiffe://example.org//a", "\"\" at octet 21"),
            ("spiffe://example.org/a/../b", "\"..\" at octet 23"),
            ("spiffe://example.org/./b", "\".\" at octet 21"),
            ("spiffe://example.org/a%2fb", "'%' at octet 22"),
            ("spiffe://example.org/a?q", "'?' at octet 22"),
            ("spiffe://example.org/a#f", "'#' at octet 22"),
            ("spiffe://example.org/a*", "'*' at octet 22"),
            ("spiffe://example.org/\u{e9}", "at octet 21"),
            ("spiffe://example.org/a\0", "'\\0' at octet 22"),
        ] {
            let error = bad.parse::<SpiffeId>().unwrap_err().to_string();
            assert!(error.contains(says), "{bad:?}: {error}");
        }
    }
}
