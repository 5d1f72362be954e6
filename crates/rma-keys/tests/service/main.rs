//! The key service as its users meet it: its messages, its files and its TLS.

#[cfg(feature = "tls")]
mod ca;
mod full_disk;
mod messages;
#[cfg(feature = "tls")]
mod secrets;
#[cfg(feature = "tls")]
mod tls;
