//! Hosts, hands and audiences that tests of several kinds share.

pub(crate) mod audience;
pub(crate) mod bench;
pub(crate) mod hand;
pub(crate) mod hosts;
