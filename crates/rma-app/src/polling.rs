//! Polling for futures: what they share, under one lock ([`shared`]); which thread polls while no
//! future does ([`seat`]); and what keeps all of it alive ([`handle`]). A [`Client`](crate::Client)
//! stands on it, and [`AsyncChannels`](crate::AsyncChannels).

pub(crate) mod handle;
pub(crate) mod seat;
pub(crate) mod shared;
