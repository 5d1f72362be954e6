//! Keys, initialization vectors and the AEAD (1RMA §4.2, Appendix A).
//!
//! A region is protected by its region key K_r. Each (initiator, responder, process, op type) has
//! its own derived region key K_d = f(K_r, …), computed anew by the responder for every op, so that
//! nothing per peer is kept. K_d seals every frame of an op with AES-128-GCM under IVs that never
//! repeat.
//!
//! What is not here: AES itself, which is `rma-crypto`'s; and which frame is sealed under which key
//! with which AAD. That is protocol, in [`crate::nic`].

mod iv;
mod key;

pub use iv::{CounterBlock, Direction, EngineId, IV_LEN, Iv, IvCounter};
pub use rma_crypto::{AeadProvider, ProviderKind, fastest};

pub(crate) use key::BindingFields;
pub use key::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule};
