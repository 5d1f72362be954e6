//! Simulated networks with a purpose: calls, keys that rotate, a Rekey at each point, and stories.

mod calls;
mod keys;
mod rekey_hops;
mod stories;
