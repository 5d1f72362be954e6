//! TLS as the key service uses it: version 1.3, certificates at both ends, identities of SPIFFE.
//!
//! A certificate proves an identity if it names exactly one URI, that URI is an identity, and its
//! chain ends at a root of *that identity's* trust domain: a root of one domain says nothing about
//! another. A client names the identity that it expects; names of DNS play no part. No session is
//! resumed, as a resumed one asks no verifier, and nothing is sent before the handshake has ended.
//!
//! | module | what it is |
//! |---|---|
//! | [`refused`] | why a peer's certificate is not taken |
//! | [`trust`] | trust domains, each with roots of its own |
//! | [`credentials`] | one's own certificate and key, and whom to trust: both sides' settings |
//! | [`pem`] | certificates and keys in files, as editors and tools have made them |
//! | [`directory`] | credentials as files, and what becomes of it when these change |
//! | [`wall`] | the date by which certificates are judged, as an argument |
//!
//! What is here opens no socket and reads no clock; only [`directory`] reads files.

pub mod credentials;
pub mod directory;
pub mod pem;
pub mod refused;
pub mod trust;
mod verifier;
pub mod wall;

pub use crate::certificate;

/// The protocol that both ends name in their handshake (RFC 7301). Peers that name another one, or
/// none, are cut off.
pub const ALPN: &[u8] = b"1rma-keys/1";

/// The most certificates of a chain, the peer's own with them, its root not: a root that was sent
/// along is left aside. More would make a service verify more signatures for strangers.
pub const CHAIN_MAX: usize = 3;

/// The longest certificate in octets. Those of SPIFFE have less than 2,048.
pub const CERTIFICATE_LEN_MAX: usize = 8 << 10;
