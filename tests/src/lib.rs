//! Cross-crate and privileged tests, and their fixtures.

pub mod channels;
pub mod exposition;
pub mod frames;
pub mod hostile_wire;
pub mod hosts;
pub mod keys;
pub mod messages;
pub mod replays;
pub mod scenario;
pub mod services;
pub mod star;
