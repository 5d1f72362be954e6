//! The key-value service: its cache and its puts.

mod cache;
mod puts;
