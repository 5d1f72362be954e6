//! A replicated cache of keys and values: clients get by one-sided reads, and put by a small RPC.
//!
//! | module | knows | does not know |
//! |---|---|---|
//! | [`layout`] | how an index and values lie in memory, and when bytes are whole | who reads |
//! | [`placement`] | which servers hold a key | how they are asked |
//! | [`lookup`] | one get at one server: what to read next | how bytes come |
//! | [`slabs`] | places for records | what is in them |
//! | [`store`] | how a put changes a server's regions under reads | who puts |
//! | [`puts`] | who may put, over TLS | how gets read |
//! | [`certificates`] | identities of a demo | what they are for |

#![forbid(unsafe_code)]

pub mod certificates;
pub mod client;
pub mod demo;
pub mod layout;
pub mod load;
pub mod lookup;
pub mod placement;
pub mod puts;
pub mod server;
pub mod slabs;
pub mod store;
