//! The cost of security to StaR: figure 12 of the paper, with our own form beside the paper's two.
//!
//! The paper's security module is the whitelist of the stateful side; its frames are not
//! authenticated. So it is compared engine to engine with a provider that seals nothing, with which
//! no host can be opened, with the whitelist asked and not; beside them is what ships, AES-128-GCM
//! and keys that are derived for each frame. Each connection has a protection domain and a memory
//! region of its own, as in the paper.
//!
//! A SEND comes with a key of its own, so that only WRITEs and READs of the stateful side are
//! looked up in a whitelist: calls are measured, as in the paper, and such WRITEs.
//!
//! A rate is that of one thread that turns the engines of both sides, and does nothing else.

use rma_bench::{aead, rates};
use rma_core::crypto::AeadProvider;
use rma_xdp::time::TscClock;

use super::{Settings, Stations};

/// Stateful sides: the paper's eight clients.
const HOSTS: u32 = 8;

/// Operations of a sample at least: several on each connection, of which only the first finds the
/// tables where the other forms' samples have left them.
const OPERATIONS: usize = 2048;

/// The work that is done on all connections at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The paper's call.
    Rpc,
    /// A WRITE of 32 bytes by the stateful side, which needs a rule.
    Write,
}

/// The way in which StaR is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The paper's without its security module: nothing is authenticated, no whitelist is asked.
    Bare,
    /// The paper's: whitelists, and nothing is authenticated.
    Whitelist,
    /// Ours: whitelists, and every frame is sealed under a key of its own.
    Sealed,
}

impl Form {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::Bare, Self::Whitelist, Self::Sealed];

    fn settings(self, connections: u32, sealed: &'static dyn AeadProvider) -> Settings {
        let aead = if self == Self::Sealed { sealed } else { aead::none() };
        Settings {
            hosts: HOSTS.min(connections),
            own_memory: true,
            whitelist: self != Self::Bare,
            ..Settings::of(connections, aead)
        }
    }
}

/// The rates of the forms at a workload, round by round.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Operations a second of each form, in the order of [`Form::ALL`].
    pub rates: [rates::Rates; Form::ALL.len()],
}

impl Rates {
    /// The rates with whitelists over those without: the median of the rounds' ratios.
    #[must_use]
    pub fn whitelist_over_bare(&self) -> f64 {
        self.rates[1].over(&self.rates[0])
    }

    /// The rates of sealed frames over those of the paper's form, likewise.
    #[must_use]
    pub fn sealed_over_whitelist(&self) -> f64 {
        self.rates[2].over(&self.rates[1])
    }
}

/// Measures `rounds` rounds, in each of which all forms take turns. `sealed` is what ours seals
/// with.
///
/// # Panics
/// If an operation does not end well, or a frame is taken for another one come again.
#[must_use]
pub fn measure(
    workload: Workload,
    connections: u32,
    sealed: &'static dyn AeadProvider,
    rounds: usize,
) -> Rates {
    let clock = TscClock::new();
    let mut forms =
        Form::ALL.map(|it| Stations::new(it.settings(connections, sealed), clock.clone()));
    let mut all = [const { Vec::new() }; Form::ALL.len()];
    for round in 0..=rounds {
        let mut rates = [0.0; Form::ALL.len()];
        // Each is the first as often as it is the last.
        for turn in 0..forms.len() {
            let form = (round + turn) % forms.len();
            rates[form] = sample(&mut forms[form], workload);
        }
        // The first round warms up, and asks for the rules.
        if round > 0 {
            all.iter_mut().zip(rates).for_each(|(all, rate)| all.push(rate));
        }
    }
    let repeats: u64 = forms.iter().map(Stations::repeats).sum();
    assert_eq!(repeats, 0, "what is taken for a repeat is sent again, and would be measured");
    Rates { rates: all.map(|rates| rates.into_iter().collect()) }
}

/// Operations a second.
fn sample(stations: &mut Stations<TscClock>, workload: Workload) -> f64 {
    let connections: Vec<u32> = (0..stations.settings().connections).collect();
    let times = OPERATIONS.div_ceil(connections.len());
    let before = stations.spent();
    for _ in 0..times {
        match workload {
            Workload::Rpc => stations.calls(&connections),
            Workload::Write => stations.writes(&connections),
        }
    }
    let after = stations.spent();
    let nanos = after.stateless - before.stateless + after.stateful - before.stateful;
    (times * connections.len()) as f64 * 1e9 / nanos as f64
}
