//! Checks: pure functions from what was seen to what is wrong.
//!
//! One row a check in `CHECKS`, and a file for each group. A check answers, or gives the reason
//! why it cannot; a panic is not among its answers, whatever is in a snapshot.

mod cpu;
mod interface;
mod irq;
mod losses;
mod machine;
mod offloads;
mod pcie;
mod ports;
mod queues;
mod rss;

use crate::{
    finding::{Class, Finding, State},
    setting::Setting,
    snapshot::{Interface, Machine, SESSION_PORT, Snapshot, Unseen},
    text::quoted,
};

/// The use that a machine is to be put to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wanted {
    /// Engines, each of which wants a queue.
    pub engines: u32,
    /// The cores that threads are pinned to, the engine's first; empty if none were named.
    pub cores: Vec<usize>,
    /// The UDP port of hosts.
    pub port: u16,
    /// The TCP port of keys and sessions.
    pub session_port: u16,
    /// Whether the kernel is to poll the device within our calls.
    pub busy_poll: bool,
    /// Whether hosts use the kernel's UDP sockets.
    pub udp: bool,
    /// Bytes of the regions that are served.
    pub region: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            engines: 1,
            cores: Vec::new(),
            port: rma_xdp::config::DEFAULT_PORT,
            session_port: SESSION_PORT,
            busy_poll: false,
            udp: false,
            region: 64 << 20,
        }
    }
}

/// An interface and the machine that it is in.
#[derive(Clone, Copy)]
struct Subject<'a> {
    machine: &'a Machine,
    interface: &'a Interface,
    wanted: &'a Wanted,
}

impl Subject<'_> {
    /// Whether the steering program runs in the network stack, unless it is asked for otherwise.
    fn is_generic(&self) -> Result<bool, Unseen> {
        const BETTER_SO: [&str; 2] = ["veth", "bond"];
        let kind = self.interface.link.get()?.kind.as_deref();
        if kind.is_some_and(|it| BETTER_SO.contains(&it)) {
            return Ok(true);
        }
        let offer = self.interface.xdp.get()?;
        Ok(!(offer.basic && offer.redirect))
    }

    /// The name, as a shell takes it.
    fn name(&self) -> String {
        quoted(&self.interface.name)
    }
}

type Answered = Result<Answer, Unseen>;

/// The answer of a check.
struct Answer {
    state: State,
    found: String,
    wanted: Option<String>,
    why: Option<String>,
    command: Option<String>,
    settings: Vec<Setting>,
}

impl Answer {
    fn new(state: State, found: impl ToString) -> Self {
        let found = found.to_string();
        Self { state, found, wanted: None, why: None, command: None, settings: Vec::new() }
    }

    fn ok(found: impl ToString) -> Self {
        Self::new(State::Ok, found)
    }

    fn note(found: impl ToString) -> Self {
        Self::new(State::Note, found)
    }

    fn mend(found: impl ToString) -> Self {
        Self::new(State::Mend, found)
    }

    fn does_not_apply(why: impl ToString) -> Self {
        Self::new(State::DoesNotApply, why)
    }

    fn wanted(mut self, wanted: impl ToString) -> Self {
        self.wanted = Some(wanted.to_string());
        self
    }

    fn why(mut self, why: impl ToString) -> Self {
        self.why = Some(why.to_string());
        self
    }

    fn command(mut self, command: impl ToString) -> Self {
        self.command = Some(command.to_string());
        self
    }

    fn setting(mut self, setting: Setting) -> Self {
        self.settings.push(setting);
        self
    }

    /// One line of `/proc` or `/sys`, as command and as setting.
    fn file(mut self, path: &str, value: &str) -> Self {
        let command = format!("echo {value} > {}", quoted(path));
        self.command = Some(match self.command {
            Some(before) => format!("{before}; {command}"),
            None => command,
        });
        self.setting(Setting::File { path: path.to_owned(), value: value.to_owned() })
    }
}

#[derive(Clone, Copy)]
enum Run {
    Machine(fn(&Machine, &Wanted) -> Answered),
    Interface(fn(&Subject<'_>) -> Answered),
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Check {
    id: &'static str,
    class: Class,
    run: Run,
    why: &'static str,
}

const fn of_machine(
    id: &'static str,
    class: Class,
    run: fn(&Machine, &Wanted) -> Answered,
    why: &'static str,
) -> Check {
    Check { id, class, run: Run::Machine(run), why }
}

const fn of_interface(
    id: &'static str,
    class: Class,
    run: fn(&Subject<'_>) -> Answered,
    why: &'static str,
) -> Check {
    Check { id, class, run: Run::Interface(run), why }
}

use Class::{Bench, Link, Person, Safe};

/// All checks.
#[rustfmt::skip]
const CHECKS: [Check; 42] = [
    of_machine("kernel", Person, machine::kernel, "the steering program needs Linux 5.18, packets in several buffers 6.6"),
    of_machine("af_xdp", Person, machine::af_xdp, "without AF_XDP in the kernel only the UDP backend works"),
    of_machine("capabilities", Safe, machine::capabilities, "a host over AF_XDP needs five capabilities"),
    of_machine("memlock", Person, machine::memlock, "the memory of frames is locked, and there is a limit to that"),
    of_machine("state_dir", Safe, machine::state_dir, "without it the order of counters across restarts stands on the wall clock"),
    of_machine("wall_clock", Person, machine::wall_clock, "certificates, and counters without a state directory, stand on the wall clock"),
    of_machine("aead", Person, machine::aead, "without the processor's AES instructions a frame takes 5 to 10 times as long"),
    of_machine("bpf_jit", Safe, machine::bpf_jit, "without it the steering program is interpreted for each frame"),
    of_machine("lockdown", Person, machine::lockdown, "a kernel that is locked down may refuse the steering program"),
    of_machine("huge_pages", Person, machine::huge_pages, "regions from 2 MiB on small pages cost a miss of the TLB for many an op"),
    of_machine("clock", Person, cpu::clock, "another clock than the TSC makes each reading a system call"),
    of_machine("governor", Safe, cpu::governor, "a core that is clocked down takes longer for all that it does"),
    of_machine("idle_states", Bench, cpu::idle_states, "a core that sleeps deeply takes long to wake"),
    of_machine("isolation", Person, cpu::isolation, "without it the scheduler may give an engine's core to others"),
    of_machine("smt", Person, cpu::smt, "a busy sibling takes half of an engine's core"),
    of_machine("cores", Person, cpu::cores_for_threads, "each thread that spins wants a core of its own"),
    of_machine("steal", Person, cpu::steal, "somebody takes the core away: the slowest percents are theirs, not 1RMA's"),
    of_machine("port", Person, ports::port, "two hosts of one address cannot have one port"),
    of_machine("session_port", Person, ports::session_port, "keys and sessions are served there, unless --listen says otherwise"),
    of_machine("firewall", Person, ports::firewall, "AF_XDP does not pass the firewall; keys, sessions and the UDP backend do"),
    of_interface("link", Safe, interface::link, "no frame passes a link that is down, and half duplex drops them"),
    of_interface("kind", Person, interface::kind, "a host opens the interface that frames arrive on"),
    of_interface("address", Person, interface::address, "a host answers for an address of its interface"),
    of_interface("xdp_native", Person, interface::xdp_native, "in generic mode the kernel makes a buffer of its own for each frame first"),
    of_interface("zero_copy", Person, interface::zero_copy, "without it the kernel copies each frame"),
    of_interface("other_program", Person, interface::other_program, "an interface has one XDP program"),
    of_interface("mtu", Link, interface::mtu, "a packet of more than one buffer needs what this kernel or driver lacks"),
    of_interface("lro", Link, offloads::lro, "frames are merged before XDP sees them, and large ops lose theirs"),
    of_interface("gro_generic", Safe, offloads::gro_generic, "packets are merged before generic XDP sees them"),
    of_interface("vlan_offload", Safe, offloads::vlan_offload, "tags are taken off before XDP sees them, and put on no frame that goes out"),
    of_interface("rings", Link, queues::rings, "short rings lose frames in a pause of the engine, long ones do not fit the cache"),
    of_interface("channels", Link, queues::channels, "each engine wants a queue of its own, and looks at all that it has"),
    of_interface("rss_fields", Safe, rss::fields, "without ports in the hash the frames of two hosts all come to one engine"),
    of_interface("rss_table", Safe, rss::table, "an engine whose queue is not in the table gets no frames"),
    of_interface("ntuple", Person, rss::ntuple, "a rule takes 1RMA's frames to a queue of its choice"),
    of_interface("coalescing", Safe, irq::coalescing, "an interrupt that waits is added to each hop"),
    of_interface("irq", Safe, irq::irq, "interrupts on an engine's core, or far from the device, cost time and misses"),
    of_interface("busy_poll", Safe, irq::busy_poll, "--busy-poll has the device to itself only with both set"),
    of_interface("numa", Bench, pcie::numa, "each frame crosses between the nodes"),
    of_interface("pause_eee", Link, offloads::pause_eee, "with pause a slow peer stops this port; EEE takes time to wake the link"),
    of_interface("pcie", Person, pcie::pcie, "the slot carries less than the device can"),
    of_interface("losses", Person, losses::losses, "frames that the device dropped are TIMEOUTs, or retries"),
];

/// Runs all checks over a snapshot, of the machine first, then of each interface.
#[must_use]
pub fn check(snapshot: &Snapshot, wanted: &Wanted) -> Vec<Finding> {
    let machine = &snapshot.machine;
    let mut findings: Vec<Finding> = CHECKS
        .iter()
        .filter_map(|check| {
            let Run::Machine(run) = check.run else { return None };
            Some(check.finding(None, run(machine, wanted)))
        })
        .collect();
    for interface in &snapshot.interfaces {
        let subject = Subject { machine, interface, wanted };
        findings.extend(CHECKS.iter().filter_map(|check| {
            let Run::Interface(run) = check.run else { return None };
            Some(check.finding(Some(&interface.name), run(&subject)))
        }));
    }
    findings
}

impl Check {
    fn finding(&self, interface: Option<&String>, answered: Answered) -> Finding {
        let answer = answered.unwrap_or_else(|Unseen(why)| Answer::new(State::Unknown, why));
        Finding {
            id: self.id.to_owned(),
            interface: interface.cloned(),
            state: answer.state,
            found: answer.found,
            wanted: answer.wanted,
            why: answer.why.unwrap_or_else(|| self.why.to_owned()),
            command: answer.command,
            class: self.class,
            settings: answer.settings,
        }
    }
}

#[cfg(test)]
mod tests;
