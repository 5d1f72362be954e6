//! Networks that nobody should trust: they change, repeat and hold back what they carry.

mod hostile_wire;
mod replay_floods;
