//! Between two machines: 1RMA, and the kernel's sockets that a server opens beside it.

use core::time::Duration;

use rma_xdp::{OpType, Portal, device::DeviceInfo};

use super::{
    CompareArgs, Contest, Entry,
    lab::{over_kernel, reads},
    list::{How, Peer},
    once,
    round::{LONG, Round, Values},
    table::Start,
};
use crate::{
    aead,
    client::{Area, Client},
    compare::{
        fetch::{Fetched, Fetches, Way},
        remote::fetch_from,
    },
    conditions::Conditions,
    error::PairError,
    interrupt::Interrupt,
    keys::KeysError,
    machine::{Machine, mode_and_mtu},
    remote::{Remote, Wanted, open_named},
    serve::{ServeError, Tuning},
    session::{Session, SessionError},
};

/// How long it looks for a way to the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client, and the server's session.
struct Both {
    portal: Portal,
    client: Client,
    remote: Remote,
}

/// An error of one measurement.
enum Fault {
    /// The session has failed.
    Session(SessionError),
    /// The server opens no port, for this reason.
    Refused(String),
    Pair(PairError),
}

impl From<PairError> for Fault {
    fn from(error: PairError) -> Self {
        Self::Pair(error)
    }
}

impl Both {
    fn session(&mut self) -> Result<&mut Session, KeysError> {
        self.remote.session.as_mut().ok_or(KeysError::NoSession)
    }

    /// Measures over the kernel's sockets, on a port that is opened for each kind of fetch.
    fn kernel(&mut self, way: Way, round: Round) -> Result<Values, Fault> {
        let seed = self.client.pattern.seed();
        let Some(session) = &mut self.remote.session else {
            return Err(Fault::Refused("there is no session".to_owned()));
        };
        over_kernel(way, round, |fetches: Fetches| -> Result<Fetched, Fault> {
            let mut port = |way| session.port(way, fetches.size as u64).map_err(Fault::Session);
            let opened = port(Some(way))?.map_err(Fault::Refused)?;
            let why = || Fault::Refused("the server has opened no port".to_owned());
            let fetched = fetch_from(&opened.ok_or_else(why)?, way, seed, fetches);
            let _ = port(None)?;
            Ok(fetched?)
        })
    }

    fn measure(
        &mut self,
        how: How,
        round: Round,
        interrupt: &Interrupt,
    ) -> Result<Result<Values, String>, ServeError> {
        let How::Kernel(way) = how else {
            let Self { portal, client, remote } = self;
            let measured = once(|| reads(client, portal, round, interrupt), interrupt);
            return measured.map(Ok).map_err(|error| remote.explain(error));
        };
        let mut fault = None;
        let measured = once(
            || match self.kernel(way, round) {
                Ok(values) => Ok(values),
                Err(Fault::Pair(error)) => Err(error),
                Err(other) => {
                    fault = Some(other);
                    Err(PairError::Interrupted)
                }
            },
            interrupt,
        );
        match (measured, fault) {
            (_, Some(Fault::Session(why))) => Err(KeysError::from(why).into()),
            (_, Some(Fault::Refused(why))) => Ok(Err(why)),
            (Ok(values), _) => Ok(Ok(values)),
            (Err(error @ (PairError::SpoiledRound(_) | PairError::Sockets(_))), _) => {
                Ok(Err(error.to_string()))
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// Whether a peer can be measured between two machines, or why not. What the server opens no port
/// for is seen when one is wanted.
fn place(peer: Peer) -> Result<(), String> {
    let why = match peer.how {
        How::OneRma | How::Kernel(_) => return Ok(()),
        How::Floor => "it has to have both interfaces for itself: compare --lab",
        How::KernelWithoutGso(_) => {
            "the interface decides: ethtool -K INTERFACE tso off gso off, at both ends"
        }
        How::Tool(_) => "with compare --lab only",
    };
    Err(why.to_owned())
}

/// The rules that do not hold here.
fn notes(both: &Both, session: &Session) -> Vec<String> {
    let there = &session.hello().conditions;
    let mut notes = Vec::new();
    if there.backend != "udp" || !matches!(both.client.host.info(), DeviceInfo::Udp(_)) {
        notes.push(
            "one interface at each end for all: the steering program of 1RMA stays on it, and the kernel's packets pass it"
                .to_owned(),
        );
    }
    let core = match there.core {
        Some(core) => format!("both on core {core}"),
        None => "on no core of its own (serve --cores pins both)".to_owned(),
    };
    notes
        .push(format!("the server's engine leaves its core to whom 1RMA is compared with: {core}"));
    notes
        .push("blocks take turns; spread: the longest p50 of a block over the shortest".to_owned());
    notes
}

/// Compares with what the server opens.
pub(super) fn run(args: &CompareArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let machine = Machine::here();
    let open = || -> Result<Both, ServeError> {
        let service = args.keys.service()?.ok_or(KeysError::NotInvited)?;
        let (op_types, patience) = (&[OpType::Read][..], PATIENCE);
        let (size, tuning, quiet) = (64, Tuning::default(), true);
        let wanted = Wanted { size, op_types, patience, tuning, quiet };
        let (client, remote, _) = open_named(&args.host, (&args.keys, &service), wanted)?;
        let portal = client.host.portal(args.depth)?;
        Ok(Both { portal, client, remote })
    };
    let mut both = interrupt.leaving_at_once(open)?;
    let region_len = both.client.grants.any().region_len;
    let readable = both.session()?.hello().writable.offset.min(region_len);
    if readable < LONG {
        return Err(ServeError::ReadersHalf { size: LONG, len: readable });
    }
    both.client.set_area(Area { offset: 0, len: readable });
    both.client.reach(interrupt).map_err(|error| both.remote.explain(error))?;
    let entry = |peer| Entry { peer, stage: place(peer), measured_by: None, rounds: Vec::new() };
    let entries = args.peers().map(entry).collect();
    let session = both.remote.session.as_ref().ok_or(KeysError::NoSession)?;
    let Conditions { device, .. } = &session.hello().conditions;
    // Somebody else's words: none of them moves a cursor.
    let device = device.replace(char::is_control, "");
    let links = format!("{}; there {device}; {}", both.client.host.info(), aead::words());
    let (_, mtu) = mode_and_mtu(both.client.host.info());
    args.introduce(&Start { mtu, ..args.start(machine, links, notes(&both, session)) });
    Contest { entries }
        .run(args, interrupt, |peer, (): &mut (), round| both.measure(peer.how, round, interrupt))
}
