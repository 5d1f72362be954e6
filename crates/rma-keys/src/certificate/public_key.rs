//! The public key of a certificate: of which kind it is, and how long.
//!
//! Only so much of it is read that a person can be told why it is of no use. Whether something was
//! signed with it is not asked here.

use core::fmt;

use super::der::Der;

const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;

/// The kinds, by their object identifiers.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// The kind and parameters of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublicKey {
    /// RSA, with a modulus of so many bits.
    Rsa {
        /// How many.
        bits: usize,
    },
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// EdDSA on Curve25519.
    Ed25519,
    /// Any other, or one that cannot be read.
    Other,
}

impl PublicKey {
    /// Reads what a certificate says of its key.
    pub(super) fn read(contents: &[u8]) -> Self {
        Self::of(contents).unwrap_or(Self::Other)
    }

    fn of(contents: &[u8]) -> Option<Self> {
        let mut contents = Der(contents);
        let mut kind = Der(contents.expect(SEQUENCE, "the kind of a key").ok()?);
        match kind.expect(OBJECT, "the kind of a key").ok()? {
            ED25519 => Some(Self::Ed25519),
            EC => match kind.expect(OBJECT, "a curve").ok()? {
                P256 => Some(Self::P256),
                P384 => Some(Self::P384),
                _ => None,
            },
            RSA => {
                let octets = contents.expect(BIT_STRING, "a key").ok()?;
                let mut key = Der(Der(octets.get(1..)?).expect(SEQUENCE, "a key").ok()?);
                let modulus = key.expect(INTEGER, "a modulus").ok()?;
                let zeros = modulus.iter().take_while(|&&octet| octet == 0).count();
                let modulus = &modulus[zeros..];
                let unused = modulus.first()?.leading_zeros() as usize;
                Some(Self::Rsa { bits: modulus.len() * 8 - unused })
            }
            _ => None,
        }
    }

    /// Whether its owner can prove that he has the private key of it.
    #[must_use]
    pub const fn can_sign(self) -> bool {
        match self {
            Self::Rsa { bits } => bits >= 2048 && bits <= 4096,
            Self::P256 | Self::P384 | Self::Ed25519 => true,
            Self::Other => false,
        }
    }

    /// Whether what was signed with it is believed.
    #[must_use]
    pub const fn can_verify(self) -> bool {
        match self {
            Self::Rsa { bits } => bits >= 2048 && bits <= 8192,
            _ => self.can_sign(),
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "an RSA key of {bits} bits"),
            Self::P256 => f.write_str("a key of ECDSA on P-256"),
            Self::P384 => f.write_str("a key of ECDSA on P-384"),
            Self::Ed25519 => f.write_str("a key of Ed25519"),
            Self::Other => f.write_str("a key of another kind"),
        }
    }
}
