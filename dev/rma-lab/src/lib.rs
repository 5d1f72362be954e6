//! Fixtures that the workspace's tests, benches and fuzzers share.
//!
//! | module | what it is |
//! |---|---|
//! | `memory` | a device in memory, between engines that a test turns |
//! | `clock` | a clock that stands until somebody moves it |
//! | `fake_host` | hosts that answer the gate, and do ops as the test says |
//! | `lab` | two network namespaces and the veth pair between them |
//! | `pattern` | bytes that follow from a seed, so that whoever knows it can check a region |
//! | `port` | which UDP ports somebody has |
//! | [`echo`], [`scene`] | a second service, and two hosts that serve it beside 1RMA |
//! | `scratch` | a directory for one test |
//! | [`evidence`] | how a test shows how much it has looked at |
//!
//! It opens no host and measures nothing: it knows `rma-core` and the kernel's network namespaces,
//! no device and no simulator, so that the tests of each of them can stand on it. No product crate
//! may depend on it, except for its tests.

#![forbid(unsafe_code)]

mod clock;
pub mod echo;
pub mod evidence;
mod fake_host;
mod lab;
mod memory;
mod pattern;
mod port;
pub mod scene;
mod scratch;

pub use clock::HandClock;
pub use fake_host::{Ended, FakeEngine, FakeHost, FakeHosts, Rekeys};
pub use lab::{Entered, Lab, LabConfig, LabError, Netns, ip};
pub use memory::{Carried, MemoryBackend, received};
pub use pattern::Pattern;
pub use port::udp_port_is_unused;
pub use scratch::Scratch;
