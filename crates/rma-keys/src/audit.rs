//! The audit of a service's grants, refusals and changes: an event for each, as a value and as a
//! line.
//!
//! Whoever keeps the log, [`log`] for example, writes the lines before the reply is sent: no
//! record, no grant. Events of one life have numbers that ascend by one, so that a gap shows. No
//! event holds a key. Shown, an event is one JSON object without a line break, whatever names a
//! peer has chosen.

pub mod log;

use core::{
    fmt::{self, Write},
    time::Duration,
};

use rma_core::addr::{HostAddr, LocalAddresses, Pid};

use crate::{
    epoch::{Epoch, Life},
    message::malformed::Malformed,
    name::RegionName,
    ops::OpSet,
    peer::Peer,
    policy::Place,
    time::{Now, WallTime},
};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The life of the service.
    pub life: Life,
    /// Its number in that life, from 1.
    pub sequence: u64,
    /// When it happened.
    pub at: Now,
    /// The peer that asked; `None` for an act of the service's owner.
    pub peer: Option<Peer>,
    /// The kind of event, with its details.
    pub what: What,
}

/// An event that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// Keys were given.
    Granted {
        /// The question.
        asked: Asked,
        /// The host that the keys are bound to.
        initiator: HostAddr,
        /// The epoch of the present key.
        epoch: Epoch,
        /// The epoch of the announced key that was given as well.
        next: Option<Epoch>,
        /// How long the latest of them is good for.
        lifetime: Duration,
        /// The rule that decided, if a policy did.
        rule: Option<Place>,
    },
    /// The client has the latest keys, and may keep them.
    Current {
        /// The question.
        asked: Asked,
        /// The host that the keys are bound to.
        initiator: HostAddr,
        /// The epoch that it has.
        epoch: Epoch,
        /// How long that is good for.
        lifetime: Duration,
        /// The rule that decided, if a policy did.
        rule: Option<Place>,
    },
    /// A region was refused. The client is told neither of the reasons.
    Denied {
        /// The question.
        asked: Asked,
        /// The addresses that the keys would have been bound to.
        initiators: LocalAddresses,
        /// The reason.
        why: Denial,
    },
    /// The client's host has no address of the region's family.
    NoAddressOfFamily {
        /// The question.
        asked: Asked,
        /// The addresses that it has.
        initiators: LocalAddresses,
    },
    /// Requests were turned away, as too much was asked: this one, and those since the last event
    /// of this kind.
    NotNow {
        /// How many of them.
        requests: u64,
    },
    /// The message was none.
    Malformed {
        /// The fault.
        why: Malformed,
    },
    /// The client's certificate has ended.
    CertificateEnded {
        /// When it did.
        not_after: WallTime,
    },
    /// A region was published, under a key of its own.
    Published {
        /// The region.
        region: RegionName,
        /// Its first epoch.
        epoch: Epoch,
    },
    /// A region was taken out.
    Removed {
        /// The region.
        region: RegionName,
    },
    /// The next key of a region was announced.
    Announced {
        /// The region.
        region: RegionName,
        /// The epoch that comes.
        epoch: Epoch,
    },
    /// A fresh key was announced at once, and what was announced before is dropped.
    Replaced {
        /// The region.
        region: RegionName,
        /// The epoch that comes.
        epoch: Epoch,
    },
    /// A region goes by the key that was announced.
    Installed {
        /// The region.
        region: RegionName,
        /// The epoch that has begun.
        epoch: Epoch,
    },
    /// Another policy holds.
    Reloaded {
        /// How many regions it takes something away of.
        withdrawn: usize,
    },
}

/// The reason why a region is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denial {
    /// There is none of that name.
    NoRegion,
    /// No rule gives it to this client.
    NoRule,
    /// A rule gives it to this client, for another address: the one that its connection comes from,
    /// or those that the rule lists.
    OtherAddress,
}

impl Denial {
    const fn name(self) -> &'static str {
        match self {
            Self::NoRegion => "no-region",
            Self::NoRule => "no-rule",
            Self::OtherAddress => "other-address",
        }
    }
}

/// A client's question about one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The name that it gave of the region.
    pub region: RegionName,
    /// The types of op.
    pub ops: OpSet,
    /// The process that the keys are for, as the client says.
    pub pid: Pid,
}

impl What {
    /// Returns its name in the log.
    const fn name(&self) -> &'static str {
        match self {
            Self::Granted { .. } => "granted",
            Self::Current { .. } => "current",
            Self::Denied { .. } => "denied",
            Self::NoAddressOfFamily { .. } => "no-address-of-family",
            Self::NotNow { .. } => "not-now",
            Self::Malformed { .. } => "malformed",
            Self::CertificateEnded { .. } => "certificate-ended",
            Self::Published { .. } => "published",
            Self::Removed { .. } => "removed",
            Self::Announced { .. } => "announced",
            Self::Replaced { .. } => "replaced",
            Self::Installed { .. } => "installed",
            Self::Reloaded { .. } => "reloaded",
        }
    }

    /// Returns the question, if it is about a region.
    const fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Granted { asked, .. }
            | Self::Current { asked, .. }
            | Self::Denied { asked, .. }
            | Self::NoAddressOfFamily { asked, .. } => Some(asked),
            _ => None,
        }
    }

    fn fields(&self, line: &mut Line<'_, '_>) -> fmt::Result {
        if let Some(Asked { region, ops, pid }) = self.asked() {
            line.text("region", region)?;
            line.text("ops", ops)?;
            line.number("pid", pid.0)?;
        }
        match self {
            Self::Granted { initiator, epoch, next, lifetime, rule, .. } => {
                line.text("initiator", initiator)?;
                line.text("epoch", epoch)?;
                next.iter().try_for_each(|next| line.text("next", next))?;
                line.number("lifetime_ms", lifetime.as_millis())?;
                rule.iter().try_for_each(|rule| line.text("rule", rule))
            }
            Self::Current { initiator, epoch, lifetime, rule, .. } => {
                line.text("initiator", initiator)?;
                line.text("epoch", epoch)?;
                line.number("lifetime_ms", lifetime.as_millis())?;
                rule.iter().try_for_each(|rule| line.text("rule", rule))
            }
            Self::Denied { initiators, why, .. } => {
                line.addresses(*initiators)?;
                line.text("why", why.name())
            }
            Self::NoAddressOfFamily { initiators, .. } => line.addresses(*initiators),
            Self::NotNow { requests } => line.number("requests", requests),
            Self::Malformed { why } => line.text("why", why),
            Self::CertificateEnded { not_after } => line.text("not_after", not_after),
            Self::Removed { region } => line.text("region", region),
            Self::Published { region, epoch }
            | Self::Announced { region, epoch }
            | Self::Replaced { region, epoch }
            | Self::Installed { region, epoch } => {
                line.text("region", region)?;
                line.text("epoch", epoch)
            }
            Self::Reloaded { withdrawn } => line.number("withdrawn", withdrawn),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Line { f, begun: false };
        line.text("life", self.life)?;
        line.number("sequence", self.sequence)?;
        line.text("event", self.what.name())?;
        line.text("wall", self.at.wall)?;
        line.number("boot_ns", self.at.boot.as_nanos())?;
        if let Some(Peer { identity, serial, address, .. }) = &self.peer {
            line.text("identity", identity)?;
            line.text("serial", serial)?;
            line.text("address", address)?;
        }
        self.what.fields(&mut line)?;
        line.f.write_char('}')
    }
}

/// A JSON object that is being written.
struct Line<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    begun: bool,
}

impl Line<'_, '_> {
    fn key(&mut self, key: &str) -> fmt::Result {
        let before = if core::mem::replace(&mut self.begun, true) { ',' } else { '{' };
        write!(self.f, "{before}\"{key}\":")
    }

    /// A value that JSON knows unquoted.
    fn number(&mut self, key: &str, value: impl fmt::Display) -> fmt::Result {
        self.key(key)?;
        write!(self.f, "{value}")
    }

    /// The addresses that keys were asked for.
    fn addresses(&mut self, initiators: LocalAddresses) -> fmt::Result {
        let mut texts = initiators.iter().map(|it| it.to_string());
        let (first, second) = (texts.next().unwrap_or_default(), texts.next());
        match second {
            Some(second) => self.text("initiator", format_args!("{first}, {second}")),
            None => self.text("initiator", first),
        }
    }

    fn text(&mut self, key: &str, value: impl fmt::Display) -> fmt::Result {
        self.key(key)?;
        self.f.write_char('"')?;
        write!(Escaped(self.f), "{value}")?;
        self.f.write_char('"')
    }
}

/// Writes what is written to it as the inside of a JSON text.
struct Escaped<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|it| match it {
            '"' | '\\' => write!(self.0, "\\{it}"),
            it if it.is_control() || matches!(it, '\u{2028}' | '\u{2029}') => {
                write!(self.0, "\\u{:04x}", it as u32)
            }
            it => self.0.write_char(it),
        })
    }
}
