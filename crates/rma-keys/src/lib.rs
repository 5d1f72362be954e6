//! The key service: which process gets which K_d, until when (1RMA §3.1 and §4.2, figure 5, steps
//! 1 to 3).
//!
//! The paper bootstraps remote access with an out-of-band encrypted RPC: a client tells a server
//! which region it wants, the server's software derives K_d from the region's K_r, and sends it
//! back, without keeping it. This crate is what that RPC says and who decides. `docs/KEYS.md` is
//! the normative page of its messages.
//!
//! What is here knows no transport: bytes come from a peer whose certificate somebody else has
//! verified, and bytes go back. An application that has an encrypted RPC of its own carries them
//! over that.
//!
//! # Layers, top down
//!
//! | module | knows | does not know |
//! |---|---|---|
//! | [`io`] | sockets and threads: a service's, and a client's | what is asked |
//! | [`tls`] | certificates, and whose they are | sockets, what is asked |
//! | [`recorded`] | a service with its log, whose lines go first | sockets |
//! | [`keyed`] | transfers that go on when keys change | how keys come |
//! | [`cache`] | which service is asked for what, and when | how it is reached |
//! | [`ring`] | the keys of one region, and what ops say of them | services |
//! | [`replicas`] | which of several services is worth asking | what is asked |
//! | [`service`] | what a peer that asks is given, and how often it may ask | sockets, certificates |
//! | [`rotation`] | when a region's key changes, and whether it has | how its responder is reached |
//! | [`audit`] | what has been given or refused, as values, as lines, and in files | keys |
//! | [`catalog`] | regions by name, with the keys of their epochs | who may have them |
//! | [`policy`] | which identity may have which region, in TOML | keys, where regions are |
//! | [`message`] | requests and replies, octet by octet | who sends them |
//! | [`certificate`] | what a certificate says, read from its octets | whether that is true |
//! | [`identity`], [`peer`] | who a peer is | how that was proved |
//! | [`name`], [`epoch`], [`ops`], [`time`], [`secret`], [`limits`] | what the others speak of | all else |
//!
//! Without features this crate reads no clock, draws no random numbers, starts no thread, opens no
//! file but the log's, and compiles no C: time, keys and seeds are arguments. There is no `unsafe`.
//! The feature `tls`, which is on by default, adds certificates, sockets and threads.
//!
//! # Secrets
//!
//! No type that holds a key shows it in `Debug`, none has serde, and no error or audit event holds
//! one. Buffers of this crate that hold keys are erased when they are dropped; copies that the
//! compiler makes on the stack are not.

#![forbid(unsafe_code)]

pub mod audit;
pub mod cache;
pub mod catalog;
#[cfg(feature = "tls")]
pub mod cause;
pub mod certificate;
pub mod epoch;
mod evidence;
pub mod identity;
#[cfg(feature = "tls")]
pub mod io;
mod jitter;
pub mod keyed;
pub mod limits;
pub mod message;
pub mod name;
pub mod ops;
pub mod peer;
pub mod policy;
pub mod recorded;
pub mod replicas;
pub mod ring;
pub mod rotation;
pub mod secret;
pub mod service;
#[cfg(test)]
mod tests;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;
