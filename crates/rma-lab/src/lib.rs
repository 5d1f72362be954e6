//! What tests, benches and fuzzers of the workspace share, below them all.
//!
//! | module | what it is |
//! |---|---|
//! | `lab` | two network namespaces and the veth pair between them |
//! | `pattern` | bytes that follow from a seed, so that whoever knows it can check a region |
//! | `scratch` | a directory for one test |
//! | [`evidence`] | how a test shows how much it has looked at |
//!
//! It opens no host and measures nothing: it knows `rma-core` and the kernel's network namespaces,
//! no device and no simulator, so that the tests of each of them can stand on it. No product crate
//! may depend on it, except for its tests.

#![forbid(unsafe_code)]

pub mod evidence;
mod lab;
mod pattern;
mod scratch;

pub use lab::{Entered, Lab, LabConfig, LabError, Netns, ip};
pub use pattern::Pattern;
pub use scratch::Scratch;
