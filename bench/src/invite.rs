//! Invitations: a code that `rma-bench serve` makes and shows, and that a client on another host is
//! given. From it both have credentials for the key service; nothing is carried over or written.
//!
//! A code is 128 random bits and 7 that check them, in Crockford's base 32. Both sides derive one
//! key from it (HKDF-SHA-256), the seed of an Ed25519 key, which is a root; each issues itself a
//! certificate under that root, for a key of its own. A trust anchor is a name and a key: nothing
//! else of the two roots has to be the same.
//!
//! Contract:
//! - Whoever has the code can be either side, and may use all that is served. Whoever has not
//!   learns nothing of it from the connections, and has 2^128 codes to try.
//! - An honest client cannot be taken for a server: each certificate is for one purpose.
//! - An invitation ends with the process that made it. So certificates name no other end: they are
//!   good from 1970 to 9999, whatever the clocks of the two hosts show, and however long is served.
//! - Each wrong letter of a code is found before anybody is asked: it is a burst of at most 5 bits,
//!   and the check finds those of up to 7.

use core::{fmt, str::FromStr};
use std::io::{self, BufRead};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use ring::{
    hkdf::{HKDF_SHA256, Salt},
    rand::{SystemRandom, generate},
};
use rma_keys::tls::trust::Side;
use rma_xdp::keys::{Credentials, OpSet, Policy, RegionName, SpiffeId, Trust};

/// The variable of the environment that a code may be in.
pub(crate) const VARIABLE: &str = "RMA_BENCH_INVITE";

/// The trust domain of every invitation: a name that nobody has (RFC 6761).
pub(crate) const DOMAIN: &str = "invite.invalid";

/// The letters of Crockford's base 32.
const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// How many letters a code has.
const LEN: u32 = 27;

/// How many letters are of random bits alone. The other two have the last three, and the check.
const PURE: u32 = 25;

/// The beginning of an Ed25519 key in PKCS#8 (RFC 8410): its seed follows.
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Returns the identity of this side of every invitation.
pub(crate) fn identity(side: Side) -> SpiffeId {
    let name = match side {
        Side::Server => "server",
        Side::Client => "client",
    };
    format!("spiffe://{DOMAIN}/{name}").parse().expect("an identity")
}

/// The secret that both sides have.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation(u128);

/// Never shows the code.
impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invitation")
    }
}

/// The reason why there is no invitation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvitationError {
    /// A code has no such letter.
    #[error("{0:?} is no letter of a code: take it as `rma-bench serve` has printed it")]
    Letter(char),
    /// Letters are missing, or too many.
    #[error("{0} letters, and a code has {LEN}: take all that `rma-bench serve` has printed")]
    Length(u32),
    /// The letters do not go together.
    #[error("a letter of the code is wrong: compare it with what `rma-bench serve` has printed")]
    Check,
    /// It cannot be read.
    #[error("no code from standard input: {0}; write it there as one line")]
    Input(io::Error),
    /// The one in the environment is none.
    #[error("the code in the variable {VARIABLE}: {0}")]
    Variable(Box<Self>),
    /// There are no certificates.
    #[error("the certificates of an invitation cannot be made: {0}")]
    Certificates(#[from] rcgen::Error),
    /// The kernel gives no random octets.
    #[error("the kernel gives no random octets for an invitation")]
    Random,
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Self, InvitationError> {
        let (mut bits, mut tail, mut len) = (0_u128, 0_u128, 0);
        for letter in text.chars().filter(|it| it.is_alphanumeric()) {
            let meant = match letter.to_ascii_uppercase() {
                'I' | 'L' => '1',
                'O' => '0',
                other => other,
            };
            let value = LETTERS.iter().position(|&it| char::from(it) == meant);
            let value = value.ok_or(InvitationError::Letter(letter))? as u128;
            let into = if len < PURE { &mut bits } else { &mut tail };
            *into = *into << 5 | value;
            len += 1;
        }
        if len != LEN {
            return Err(InvitationError::Length(len));
        }
        let bits = bits << 3 | tail >> 7;
        if tail & 0x7f != check(bits) {
            return Err(InvitationError::Check);
        }
        Ok(Self(bits))
    }
}

/// A code as it is given to `--invite`: itself, or `-` for a line of standard input. It is not read
/// with the other options, whose errors show what was typed.
#[derive(Clone)]
pub struct Typed(String);

/// Never shows the code.
impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed")
    }
}

impl From<String> for Typed {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Typed {
    /// Reads the code.
    pub(crate) fn read(&self) -> Result<Invitation, InvitationError> {
        if self.0 != "-" {
            return self.0.parse();
        }
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(InvitationError::Input)?;
        line.parse()
    }
}

/// Returns the CRC-7 of so many bits, x^7 + x^3 + 1.
fn check(bits: u128) -> u128 {
    (0..u128::BITS).rev().fold(0, |crc, at| {
        let is_over = (crc >> 6 ^ bits >> at) & 1 == 1;
        crc << 1 & 0x7f ^ if is_over { 0b1001 } else { 0 }
    })
}

impl Invitation {
    /// Makes one that nobody has.
    pub(crate) fn new() -> Result<Self, InvitationError> {
        let random = generate(&SystemRandom::new()).or(Err(InvitationError::Random))?;
        Ok(Self(u128::from_be_bytes(random.expose())))
    }

    /// Returns the code, as people copy it.
    pub(crate) fn code(&self) -> String {
        let tail = (self.0 & 0b111) << 7 | check(self.0);
        let mut code = String::new();
        for at in 0..LEN {
            if at > 0 && at.is_multiple_of(4) {
                code.push('-');
            }
            let value = if at < PURE {
                self.0 >> (u128::BITS - 5 * (at + 1))
            } else {
                tail >> (5 * (LEN - 1 - at))
            };
            code.push(char::from(LETTERS[(value & 31) as usize]));
        }
        code
    }

    /// Makes what proves one to be this side, and believes the other.
    pub(crate) fn credentials(&self, side: Side) -> Result<Credentials, InvitationError> {
        let root = self.root()?;
        let mut params = endless();
        let uri = identity(side).as_str().try_into()?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match side {
            Side::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Side::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let own = KeyPair::generate()?;
        let leaf = params.signed_by(&own, &root)?;
        let trust = Trust::none().with(DOMAIN, vec![root.der().clone()]);
        let trust = trust.expect("one root, of a key of Ed25519");
        let credentials = Credentials::new(vec![leaf.der().clone()], own.into(), trust);
        Ok(credentials.expect("a certificate with an identity and its key"))
    }

    /// Makes the root.
    fn root(&self) -> Result<CertifiedIssuer<'static, KeyPair>, InvitationError> {
        let secret =
            Salt::new(HKDF_SHA256, b"rma-bench invitation 1").extract(&self.0.to_be_bytes());
        let mut key = [0; PKCS8.len() + 32];
        let (head, seed) = key.split_at_mut(PKCS8.len());
        head.copy_from_slice(&PKCS8);
        let expanded = secret.expand(&[b"root"], HKDF_SHA256).and_then(|it| it.fill(seed));
        expanded.expect("as many octets as a hash has");
        let mut params = endless();
        params.distinguished_name.push(DnType::CommonName, "rma-bench invitation");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(CertifiedIssuer::self_signed(params, KeyPair::try_from(&key[..])?)?)
    }
}

/// Returns the parameters of a certificate that no clock ends.
fn endless() -> CertificateParams {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) =
        (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
    params
}

/// Returns the policy of whoever invites: the client may have each of these regions, for these ops,
/// from the address that its connection comes from.
pub(crate) fn policy<'a>(regions: impl IntoIterator<Item = (&'a RegionName, OpSet)>) -> Policy {
    let client = identity(Side::Client);
    let rule = |(region, ops): (&RegionName, OpSet)| {
        let ops = ops.iter().map(|it| format!("{:?}", it.name().to_ascii_lowercase()));
        let ops = ops.collect::<Vec<_>>().join(", ");
        format!("[[allow]]\nregion = \"{region}\"\nidentity = \"{client}\"\nops = [{ops}]\n")
    };
    let rules: String = regions.into_iter().map(rule).collect();
    Policy::parse(&rules).expect("rules of names that need no escape")
}

#[cfg(test)]
mod tests {
    use rma_keys::{io::clock, time::WallTime, tls::certificate::Certificate};
    use rma_xdp::OpType;

    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written_and_as_people_write_it() {
        let invitation = Invitation(0x0123_4567_89ab_cdef_fedc_ba98_7654_3211);
        let code = invitation.code();
        assert_eq!(code.len(), 27 + 6, "{code}");
        assert!(code.split('-').take(6).all(|it| it.len() == 4), "{code}");
        let spoken = code.to_lowercase().replace('-', " ").replace('1', "l").replace('0', "o");
        for text in [&code, &spoken, &code.replace('-', ""), &code.replace('1', "i")] {
            assert!(text.parse::<Invitation>().unwrap() == invitation, "{text}");
        }
        for bits in [0, 1, u128::MAX, 1 << 127, 7] {
            assert!(Invitation(bits).code().parse::<Invitation>().unwrap() == Invitation(bits));
        }
        assert!(Invitation::new().unwrap() != Invitation::new().unwrap());
        assert_eq!(format!("{invitation:?}"), "Invitation");
    }

    #[test]
    fn each_wrong_letter_of_a_code_is_found_and_so_is_what_is_none() {
        let code = Invitation::new().unwrap().code().into_bytes();
        for at in (0..code.len()).filter(|&at| code[at] != b'-') {
            for &other in LETTERS.iter().filter(|&&it| it != code[at]) {
                let mut wrong = code.clone();
                wrong[at] = other;
                let error = String::from_utf8(wrong).unwrap().parse::<Invitation>().unwrap_err();
                assert!(matches!(error, InvitationError::Check), "{at}: {error}");
            }
        }
        let code = String::from_utf8(code).unwrap();
        let why = |text: &str| text.parse::<Invitation>().unwrap_err().to_string();
        assert!(
            why(&code[1..]).starts_with("26 letters, and a code has 27"),
            "{}",
            why(&code[1..])
        );
        assert!(why("").starts_with("0 letters"));
        assert!(why(&code.replacen(&code[..1], "u", 1)).starts_with("'u' is no letter"));
    }

    #[test]
    fn equal_codes_have_one_root_and_others_another() {
        let key = |bits| Invitation(bits).root().unwrap().key().public_key_raw().to_owned();
        assert_eq!(key(5), key(5));
        assert_ne!(key(5), key(6));
        let subject = |bits| {
            let root = Invitation(bits).root().unwrap();
            Certificate::read(root.der()).unwrap().subject
        };
        assert_eq!(subject(5), subject(6), "the key tells them apart");
    }

    #[test]
    fn either_side_believes_the_other_of_the_same_code_and_no_client_is_a_server() {
        let now = clock::now().wall;
        for side in [Side::Server, Side::Client] {
            let credentials = Invitation(5).credentials(side).unwrap();
            assert_eq!(*credentials.identity(), identity(side));
            credentials.verify(side, now).unwrap();
            for year in [1971, 9998] {
                let millis = (year - 1970) * 365 * 86_400_000;
                credentials.verify(side, WallTime::from_unix_millis(millis)).unwrap();
            }
        }
        let client = Invitation(5).credentials(Side::Client).unwrap();
        let why = client.verify(Side::Server, now).unwrap_err().to_string();
        assert!(why.contains("spiffe://invite.invalid/client does not hold"), "{why}");
    }

    #[test]
    fn the_policy_is_for_the_regions_and_ops_that_are_served() {
        let ops: OpSet = [OpType::Read, OpType::CompareSwap].into_iter().collect();
        let [region, queue] = ["bench/a-b_c.d", "other/queue"].map(|it| it.parse().unwrap());
        let policy = policy([(&region, ops), (&queue, OpSet::NONE.with(OpType::Send))]);
        let shown = format!("{policy:?}");
        for part in ["bench/a-b_c.d", "READ,COMPARE_SWAP", "other/queue", "SEND"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
