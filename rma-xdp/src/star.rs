//! StaR, the host's second service ([`HostConfig::star`](crate::HostConfig::star)): reliable
//! connections whose state lives on the side that has few of them, in the words of verbs.
//!
//! A host that serves StaR gives applications a [`StarVerbs`], with protection domains and memory
//! of it. Two of them set connections up over a channel that keeps secrets, and then post work
//! requests and poll completions. `docs/VERBS.md` maps every call of C verbs.
//!
//! ```
//! # use std::{error::Error, os::unix::net::UnixStream};
//! # use rma_xdp::{Host, HostConfig};
//! use rma_xdp::star::{
//!     Access, QpConfig, RecvWr, Role, SendWr, StarConfigBuilder, StarPortalConfig, Wc, WcStatus,
//! };
//!
//! /// Answers one question, and lets its peers read 64 bytes.
//! fn server(host: &Host, mut secret: UnixStream) -> Result<(), Box<dyn Error + Send + Sync>> {
//!     let mut verbs = host.verbs(StarPortalConfig::default())?;
//!     let pd = host.alloc_pd(&verbs)?;
//!     let mr = host.reg_mr(&pd, 128, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
//!     let cq = verbs.create_cq(16);
//!     // It could have very many clients: their state is kept by them.
//!     let config = QpConfig { role: Role::Stateless, ..QpConfig::default() };
//!     let qp = verbs.create_qp(&pd, cq, cq, config)?;
//!     verbs.accept_over(qp, &mut secret)?;
//!
//!     let mut wcs = [Wc::EMPTY; 4];
//!     verbs.post_recv(qp, &RecvWr { wr_id: 1, sge: mr.slice(0, 64) })?;
//!     assert_eq!(verbs.wait_cq(cq, &mut wcs)?, 1);
//!     assert_eq!(wcs[0].byte_len, 8);
//!
//!     mr.write(64, b"what you may read")?;
//!     mr.write(0, &mr.rkey().to_le_bytes())?;
//!     verbs.post_send(qp, &SendWr::send(2, mr.slice(0, 4)))?;
//!     assert_eq!(verbs.wait_cq(cq, &mut wcs)?, 1);
//! #   assert_eq!(wcs[0].status, WcStatus::Success);
//! #   std::io::Read::read(&mut secret, &mut [0])?; // the client has read
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
//! let open = |address| {
//!     Host::open(HostConfig::udp(address).with(|it| it.star = Some(StarConfigBuilder::default())))
//! };
//! let (there, host) = (open([127, 0, 0, 101])?, open([127, 0, 0, 102])?);
//! // A channel that keeps secrets and says who the peer is: over a network, TLS.
//! let (mut secret, other_end) = UnixStream::pair()?;
//! let serving = std::thread::spawn(move || server(&there, other_end));
//!
//! let mut verbs = host.verbs(StarPortalConfig::default())?;
//! let pd = host.alloc_pd(&verbs)?;
//! let mr = host.reg_mr(&pd, 128, Access::LOCAL_WRITE)?;
//! let cq = verbs.create_cq(16);
//! let qp = verbs.create_qp(&pd, cq, cq, QpConfig::default())?;
//! verbs.connect_over(qp, &mut secret)?;
//!
//! mr.write(0, b"question")?;
//! verbs.post_recv(qp, &RecvWr { wr_id: 1, sge: mr.slice(64, 64) })?;
//! verbs.post_send(qp, &SendWr::send(2, mr.slice(0, 8)).inline())?;
//! let mut wcs = [Wc::EMPTY; 4];
//! let mut done = 0;
//! while done < 2 {
//!     let count = verbs.wait_cq(cq, &mut wcs)?;
//!     assert!(wcs[..count].iter().all(|wc| wc.status == WcStatus::Success));
//!     done += count;
//! }
//!
//! let mut rkey = [0; 4];
//! mr.read(64, &mut rkey)?;
//! let remote = rma_xdp::star::Remote::of(u32::from_le_bytes(rkey), 64);
//! verbs.post_send(qp, &SendWr::read(3, mr.slice(0, 17), remote))?;
//! assert_eq!(verbs.wait_cq(cq, &mut wcs)?, 1);
//! let mut bytes = [0; 17];
//! mr.read(0, &mut bytes)?;
//! assert_eq!(&bytes, b"what you may read");
//! # drop(secret);
//! # serving.join().unwrap()?;
//! # Ok(())
//! # }
//! ```

/// The program of the page for whoever knows verbs compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/VERBS.md")]
struct VerbsPage;

pub(crate) mod accounts;
pub(crate) mod books;
pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod metrics;
pub(crate) mod questions;

#[doc(inline)]
pub use rma_app::star::{
    AsyncQp, AsyncVerbs, MemoryRegion, MemoryWindow, ProtectionDomain, SetUpError, SetUpStream,
    StarVerbs, Work, WorkError,
};
#[doc(inline)]
pub use rma_star::{
    config::{Framing, StarConfigBuilder, StarConfigError},
    counters::{StarDrop, StarEvent},
    library::{
        ConnectError, CqId, CreateError, PostError, Qp, QpConfig, QpInfo, QpState, RecvWr, Remote,
        Role, SendWr, Sge, SwitchError, VerbsConfig, VerbsMemory, Wc,
    },
    mr_table::{Access, MrError},
    names::{MrId, PdId},
    pd_table::PdError,
    verbs::{WcStatus, WqeOp},
};

pub use self::{driver::StarPortalConfig, error::StarError};
