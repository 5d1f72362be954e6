//! The content of a certificate (RFC 5280): its names, its serial number, the time of its validity.
//!
//! It is read and not verified: [`crate::tls`] does that, with the same octets. Only what the key
//! service goes by is looked at. Nothing in it can make a reader panic or allocate more than it has
//! octets.

mod der;
mod public_key;

use core::fmt;

use crate::{
    identity::{IdentityError, SpiffeId},
    peer::Serial,
    time::WallTime,
};
use der::Der;
pub use der::DerError;
pub use public_key::PublicKey;

const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, and the extensions, of a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Unique identifiers of issuer and subject, which nobody uses.
const UNIQUE_IDS: [u8; 2] = [0x81, 0x82];
/// A name that is a URI, among those of a subject.
const URI: u8 = 0x86;

/// The extensions that are read: other names of the subject, and whether it may sign.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];

/// The statements of a certificate about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its serial number.
    pub serial: Serial,
    /// The name of whoever has signed it, as it is encoded.
    pub issuer: Box<[u8]>,
    /// The name of whom it is about, as it is encoded.
    pub subject: Box<[u8]>,
    /// Its public key.
    pub key: PublicKey,
    /// The date that it is good from.
    pub not_before: WallTime,
    /// The date that it is good until.
    pub not_after: WallTime,
    /// The names of its subject that are URIs.
    pub uris: Vec<Box<str>>,
    /// How many other names its subject has: of DNS, or addresses.
    pub other_names: usize,
    /// Whether it may sign others.
    pub is_authority: bool,
}

/// The reason why a certificate names no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoIdentity {
    /// It names no URI.
    #[error("the certificate names no URI, and {other_names} others; it needs one spiffe:// URI")]
    NoUri {
        /// How many names of other kinds it has, of DNS for example.
        other_names: usize,
    },
    /// It names several URIs.
    #[error("the certificate names {count} URIs; an identity is exactly one")]
    Uris {
        /// How many there are.
        count: usize,
    },
    /// Its URI is no identity.
    #[error("the certificate names {uri:?}, which is no identity: {why}")]
    Uri {
        /// The URI.
        uri: Box<str>,
        /// The fault.
        why: IdentityError,
    },
}

impl Certificate {
    /// Reads the octets of a certificate.
    ///
    /// # Errors
    /// If they are none, or a serial number is longer than certificates may have.
    pub fn read(octets: &[u8]) -> Result<Self, DerError> {
        let mut outer = Der(octets);
        let mut signed = Der(outer.expect(SEQUENCE, "a certificate")?);
        let mut body = Der(signed.expect(SEQUENCE, "what a certificate says")?);
        body.optional(VERSION, "the version")?;
        let serial = body.expect(INTEGER, "the serial number")?;
        let serial = Serial::new(serial)
            .or(Err(DerError::Contents { expected: "the serial number, of 20 octets at most," }))?;
        body.expect(SEQUENCE, "the algorithm of the signature")?;
        let issuer = body.expect(SEQUENCE, "the issuer")?.into();
        let mut validity = Der(body.expect(SEQUENCE, "the validity")?);
        let (not_before, not_after) = (read_time(&mut validity)?, read_time(&mut validity)?);
        let subject = body.expect(SEQUENCE, "the subject")?.into();
        let key = PublicKey::read(body.expect(SEQUENCE, "the public key")?);
        for unused in UNIQUE_IDS {
            body.optional(unused, "a unique identifier")?;
        }
        let (uris, other_names, is_authority) = (Vec::new(), 0, false);
        let mut read = Self {
            serial,
            issuer,
            subject,
            key,
            not_before,
            not_after,
            uris,
            other_names,
            is_authority,
        };
        if let Some(extensions) = body.optional(EXTENSIONS, "the extensions")? {
            let mut extensions = Der(Der(extensions).expect(SEQUENCE, "the extensions")?);
            while !extensions.is_empty() {
                read.extension(Der(extensions.expect(SEQUENCE, "an extension")?))?;
            }
        }
        Ok(read)
    }

    fn extension(&mut self, mut extension: Der<'_>) -> Result<(), DerError> {
        let kind = extension.expect(OBJECT, "the kind of an extension")?;
        extension.optional(BOOLEAN, "whether an extension is critical")?;
        let mut contents = Der(extension.expect(OCTETS, "the contents of an extension")?);
        if kind == BASIC_CONSTRAINTS {
            let mut constraints = Der(contents.expect(SEQUENCE, "the basic constraints")?);
            let signs = constraints.optional(BOOLEAN, "whether it may sign")?;
            self.is_authority = signs.is_some_and(|it| it.iter().any(|&octet| octet != 0));
        }
        if kind == ALTERNATIVE_NAMES {
            let mut names = Der(contents.expect(SEQUENCE, "the names")?);
            while !names.is_empty() {
                match names.element("a name")? {
                    (URI, uri) => {
                        let uri = core::str::from_utf8(uri);
                        self.uris
                            .push(uri.or(Err(DerError::Contents { expected: "a URI" }))?.into());
                    }
                    _ => self.other_names += 1,
                }
            }
        }
        Ok(())
    }

    /// Whether it says that who is named in it has signed it: a root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.is_authority && self.issuer == self.subject
    }

    /// The identity that it names.
    ///
    /// # Errors
    /// If it names no URI, several, or one that is no identity.
    pub fn identity(&self) -> Result<SpiffeId, NoIdentity> {
        match &self.uris[..] {
            [] => Err(NoIdentity::NoUri { other_names: self.other_names }),
            [uri] => uri.parse().map_err(|why| NoIdentity::Uri { uri: uri.clone(), why }),
            uris => Err(NoIdentity::Uris { count: uris.len() }),
        }
    }
}

/// For people, in some lines.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_authority { "an authority" } else { "an identity" };
        writeln!(f, "certificate of {kind}")?;
        self.uris.iter().try_for_each(|uri| writeln!(f, "  uri         {uri:?}"))?;
        if self.other_names > 0 {
            writeln!(f, "  other names {}, which play no part", self.other_names)?;
        }
        writeln!(f, "  key         {}", self.key)?;
        writeln!(f, "  serial      {}", self.serial)?;
        writeln!(f, "  not before  {}", self.not_before)?;
        writeln!(f, "  not after   {}", self.not_after)
    }
}

/// A date in one of the two forms that certificates have: with two digits of the year until 2049,
/// and with four.
fn read_time(times: &mut Der<'_>) -> Result<WallTime, DerError> {
    const EXPECTED: &str = "a date";
    let bad = DerError::Contents { expected: EXPECTED };
    let (tag, text) = times.element(EXPECTED)?;
    let year_digits = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        found => return Err(DerError::Type { found, expected: EXPECTED }),
    };
    let digits = text.strip_suffix(b"Z").ok_or(bad)?;
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad);
    }
    let number =
        |digits: &[u8]| digits.iter().fold(0, |so_far, it| so_far * 10 + u16::from(it - b'0'));
    let (year, rest) = digits.split_at(year_digits);
    let year = match (tag, number(year)) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let part = |at: usize| number(&rest[2 * at..2 * at + 2]);
    let [month, day, hour, minute, second] = [0, 1, 2, 3, 4].map(part);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return Err(bad);
    }
    let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    Ok(WallTime::from_civil(year, month as u8, day as u8, seconds * 1000))
}
