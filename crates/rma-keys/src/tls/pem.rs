//! PEM as people have it: certificates and keys in files that editors, shells and tools have made.
//!
//! Byte-order marks, ends of lines of any system, blanks around lines, and text between sections
//! are left aside. Invariant: nothing that looks like a certificate is left aside, as a root that
//! vanishes from a bundle makes a service refuse all who have it; where a line is not understood,
//! the file is none. Errors never show what is in a section: it may be a key.

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};
use zeroize::Zeroizing;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Longer than any key, in octets.
const KEY_LEN: usize = 16 << 10;

/// The reason why a file is not the expected PEM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is text in two octets a character.
    #[error("it is UTF-16; make it UTF-8: `iconv -f UTF-16 -t UTF-8 OLD > NEW`")]
    Utf16,
    /// It is DER, or PKCS#12.
    #[error(
        "it is binary, and should be PEM: `openssl x509 -inform der -in OLD -out NEW` for a certificate, `openssl pkey -inform der -in OLD -out NEW` for a key, `openssl pkcs12 -nodes -in OLD -out NEW` for PKCS#12"
    )]
    Binary,
    /// A line that begins or ends a section says something else as well.
    #[error(
        "line {line} is no line that begins or ends a section; -----BEGIN …----- and -----END …----- are lines of their own, and go together"
    )]
    Mark {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A section has no end.
    #[error("the section that begins at line {line} is cut off")]
    CutOff {
        /// The line at which it begins.
        line: usize,
    },
    /// A section is not what its label says.
    #[error("the section that begins at line {line} is not base64")]
    Base64 {
        /// The line at which it begins.
        line: usize,
    },
    /// A section holds something that is not read here.
    #[error("the section that begins at line {line} is {found}; {advice}")]
    Kind {
        /// The line at which it begins.
        line: usize,
        /// The kind that was found.
        found: &'static str,
        /// The step that turns it into the expected kind.
        advice: &'static str,
    },
    /// No section is a certificate.
    #[error("it holds no certificate; those of PEM begin with a line -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// No section is a private key.
    #[error("it holds no private key; those of PEM begin with a line -----BEGIN PRIVATE KEY-----")]
    NoKey,
    /// It is not known which of several keys to take.
    #[error("it holds {count} private keys; leave the one of the certificate")]
    Keys {
        /// How many.
        count: usize,
    },
}

/// One section.
struct Section<'a> {
    label: &'a [u8],
    /// The line at which it begins.
    line: usize,
    /// The same in a form that all readers know.
    text: Zeroizing<Vec<u8>>,
    /// Whether its headers say that it is encrypted.
    is_encrypted: bool,
}

/// All certificates of a file, in its order: at least one. A key beside them is left aside.
///
/// # Errors
/// If it holds none, or anything that might be one and is not understood.
pub fn certificates(octets: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut certificates = Vec::new();
    for section in sections(octets)? {
        let kind = |found, advice| PemError::Kind { line: section.line, found, advice };
        match section.label {
            b"CERTIFICATE" => certificates.push(section.decode()?),
            b"TRUSTED CERTIFICATE" => {
                let advice = "take it out of there: `openssl x509 -in OLD -out NEW`";
                return Err(kind("a certificate with OpenSSL's notes on trust", advice));
            }
            b"PKCS7" => {
                let advice = "unpack it: `openssl pkcs7 -print_certs -in OLD -out NEW`";
                return Err(kind("PKCS#7", advice));
            }
            b"CERTIFICATE REQUEST" | b"NEW CERTIFICATE REQUEST" => {
                return Err(kind("a request", "have an authority sign it"));
            }
            b"X509 CRL" => {
                let advice = "take it out; what is not to be given any more, a policy refuses";
                return Err(kind("a list of certificates that were revoked", advice));
            }
            label if label.ends_with(b" KEY") || label.ends_with(b" PARAMETERS") => {}
            _ => return Err(kind("of a kind that is not known here", "take it out")),
        }
    }
    if certificates.is_empty() { Err(PemError::NoCertificate) } else { Ok(certificates) }
}

/// The private key of a file, in PKCS#8, SEC1 or PKCS#1.
///
/// # Errors
/// If it holds none, several, or one that cannot be read.
pub fn private_key(octets: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    let mut keys = sections(octets)?;
    keys.retain(|it| it.label.ends_with(b"PRIVATE KEY"));
    let [section] = &keys[..] else {
        let count = keys.len();
        return Err(if count == 0 { PemError::NoKey } else { PemError::Keys { count } });
    };
    let kind = |found, advice| PemError::Kind { line: section.line, found, advice };
    if section.is_encrypted || section.label == b"ENCRYPTED PRIVATE KEY" {
        let advice = "nobody is there to be asked for its password: `openssl pkey -in OLD -out NEW` and `chmod 600 NEW`";
        return Err(kind("an encrypted key", advice));
    }
    match section.label {
        b"PRIVATE KEY" | b"EC PRIVATE KEY" | b"RSA PRIVATE KEY" => section.decode(),
        b"OPENSSH PRIVATE KEY" => {
            Err(kind("a key of OpenSSH", "make one that its certificate is issued for"))
        }
        _ => Err(kind("a key of a kind that is not known here", "take ECDSA on P-256")),
    }
}

impl Section<'_> {
    fn decode<T: PemObject>(&self) -> Result<T, PemError> {
        T::from_pem_slice(&self.text).map_err(|why| match why {
            Error::MissingSectionEnd { .. } => PemError::CutOff { line: self.line },
            _ => PemError::Base64 { line: self.line },
        })
    }
}

/// The sections of a file, whatever they hold.
fn sections(octets: &[u8]) -> Result<Vec<Section<'_>>, PemError> {
    let mut sections = Vec::new();
    let mut open: Option<Section<'_>> = None;
    for (number, line) in lines(octets) {
        match &mut open {
            None => {
                let Some(label) = label(line, BEGIN) else {
                    // A comment may say anything; what else has such words may be a certificate.
                    let has = |words: &[u8]| line.windows(words.len()).any(|it| it == words);
                    let is_like_one =
                        [&b"-BEGIN "[..], b"-END ", b"BEGIN CERT", b"END CERT"].map(has);
                    if !line.starts_with(b"#") && is_like_one.contains(&true) {
                        return Err(PemError::Mark { line: number });
                    }
                    continue;
                };
                // Long enough for a key at once, so that no copy of one is left behind.
                let mut text = Zeroizing::new(Vec::with_capacity(octets.len().min(KEY_LEN) + 3));
                mark(&mut text, BEGIN, label);
                open = Some(Section { label, line: number, text, is_encrypted: false });
            }
            Some(section) => {
                if label(line, END) == Some(section.label) {
                    mark(&mut section.text, END, section.label);
                    sections.extend(open.take());
                } else if line.starts_with(BEGIN) {
                    return Err(PemError::CutOff { line: section.line });
                } else if line.windows(2).any(|it| it == b"--") {
                    return Err(PemError::Mark { line: number });
                } else if line.contains(&b':') {
                    section.is_encrypted |= line.ends_with(b"ENCRYPTED");
                } else {
                    section.text.extend_from_slice(line);
                    section.text.push(b'\n');
                }
            }
        }
    }
    if let Some(Section { line, .. }) = open {
        return Err(PemError::CutOff { line });
    }
    if sections.is_empty() {
        let is_binary = octets.starts_with(&[0x30]) && octets.get(1).is_some_and(|it| *it >= 0x80);
        if octets.iter().all(u8::is_ascii_whitespace) {
            return Err(PemError::Empty);
        } else if is_binary {
            return Err(PemError::Binary);
        } else if octets.contains(&0) {
            return Err(PemError::Utf16);
        }
    }
    Ok(sections)
}

/// Returns the label of a section, if this is a line that begins one, or ends it, and nothing else.
fn label<'a>(line: &'a [u8], which: &[u8]) -> Option<&'a [u8]> {
    let label = line.strip_prefix(which)?.strip_suffix(DASHES)?;
    (!label.contains(&b'-')).then_some(label)
}

fn mark(text: &mut Vec<u8>, which: &[u8], label: &[u8]) {
    for part in [which, label, DASHES, b"\n"] {
        text.extend_from_slice(part);
    }
}

/// The lines of a text and their numbers, without what editors put around them.
fn lines(mut rest: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut number = 0;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        number += 1;
        let end = rest.iter().position(|it| matches!(it, b'\n' | b'\r')).unwrap_or(rest.len());
        let (mut line, after) = rest.split_at(end);
        rest = after.strip_prefix(b"\r\n").or(after.get(1..)).unwrap_or_default();
        // Also in the midst of a file, where several were put together.
        while let Some(more) = line.strip_prefix(BYTE_ORDER_MARK) {
            line = more;
        }
        Some((number, line.trim_ascii()))
    })
}
