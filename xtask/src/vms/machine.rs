//! A virtual machine: QEMU without KVM, started, talked to through a virtio port, and ended.
//!
//! Commands go through the port to `init.sh`, which answers there; the kernel's console goes to a
//! file. The machine is killed on drop, and by the kernel if this process dies first.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    emulator::Emulator,
    error::{Setup, Trouble},
    hosts::{Host, is_program_line},
    image,
    kernels::Kernel,
    lines::{Lines, PATIENCE},
    network::Network,
};

/// The NIC models that a machine may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    VirtioNet,
    E1000e,
    Igb,
    Vmxnet3,
    /// One end of a veth pair, whose other end is bridged to a virtio NIC.
    Veth,
}

impl Model {
    /// As QEMU names it.
    pub(super) const fn device(self) -> &'static str {
        match self {
            Self::VirtioNet | Self::Veth => "virtio-net-pci",
            Self::E1000e => "e1000e",
            Self::Igb => "igb",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// As the kernel names its driver.
    pub(super) const fn driver(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio_net",
            Self::E1000e => "e1000e",
            Self::Igb => "igb",
            Self::Vmxnet3 => "vmxnet3",
            Self::Veth => "veth",
        }
    }

    const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::VirtioNet => &["virtio_net"],
            Self::E1000e => &["e1000e"],
            Self::Igb => &["igb"],
            Self::Vmxnet3 => &["vmxnet3"],
            Self::Veth => &["virtio_net", "veth", "bridge"],
        }
    }
}

/// For the port, before the NIC's.
const PORT_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// The parts of a machine.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// `a` or `b`.
    pub(super) name: &'static str,
    pub(super) emulator: Emulator,
    pub(super) kernel: Kernel,
    pub(super) model: Model,
    pub(super) queues: u32,
    pub(super) mtu: u32,
    /// Whether a virtio NIC goes through the kernel's DMA interface, as zero-copy wants it.
    pub(super) dma: bool,
    /// Its addresses, with the lengths of their prefixes.
    pub(super) addresses: [String; 2],
    /// Further modules of its kernel.
    pub(super) modules: &'static [&'static str],
}

impl Plan {
    /// The tap that its NIC is connected to.
    pub(super) fn tap(&self) -> String {
        format!("tap-{}", self.name)
    }

    /// Queues of that tap. The model igb takes packets from one, whatever queues it has itself.
    pub(super) fn tap_queues(&self) -> u32 {
        if self.model == Model::Igb { 1 } else { self.queues }
    }

    /// The machine, as QEMU names it. The model igb is a PCI Express device.
    const fn machine(&self) -> &'static str {
        if matches!(self.model, Model::Igb) { "q35" } else { "pc" }
    }

    /// The kernel's command line.
    fn boot(&self) -> String {
        // A kernel that panics ends the machine. On a busy computer the timer comes too late for
        // the kernel's check. Debian's 6.12 was seen to panic where it starts AppArmor, which
        // nothing here needs.
        let mut line = "console=ttyS0 panic=-1 no_timer_check apparmor=0".to_owned();
        if self.model == Model::VirtioNet && self.dma {
            // virtio_net has the device read the header of what zero-copy sends from a wrong
            // address (docs/decisions/paths.md). Without random addresses of modules it is one
            // beyond the machine's memory, where all octets are zero, as they should be.
            line.push_str(" nokaslr");
        }
        line
    }

    fn mac(&self) -> String {
        let last = self.name.bytes().next().unwrap_or_default();
        format!("52:54:00:00:00:{last:02x}")
    }

    fn device(&self) -> String {
        let Self { model, queues, mtu, dma, .. } = self;
        let mut device = format!("{},netdev=net0,mac={},romfile=", model.device(), self.mac());
        if matches!(model, Model::VirtioNet | Model::Veth) {
            // Native XDP takes no packets that the host has put together: the driver refuses it
            // while they are offered.
            device.push_str(&format!(
                ",guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_mtu={mtu}"
            ));
            if *dma {
                device.push_str(",disable-legacy=on,iommu_platform=on");
            }
            if *queues > 1 {
                // One for each direction of each queue, one for changes of the configuration, one
                // for control.
                device.push_str(&format!(",mq=on,vectors={}", 2 * queues + 2));
            }
        }
        device
    }
}

/// The interface in each machine.
pub(super) const INTERFACE: &str = "eth0";

/// Memory of each machine, in MiB: its system and its programs are in there as well.
const MEMORY: u32 = 512;

/// A machine that runs.
#[derive(Debug)]
pub(super) struct Machine {
    name: &'static str,
    folder: PathBuf,
    qemu: Child,
    stdin: ChildStdin,
    lines: Lines,
    /// The lines of programs that came while something else was awaited.
    said: VecDeque<String>,
}

impl Machine {
    /// Starts a machine. Its console and its image are in `folder`.
    pub(super) fn start(
        plan: &Plan,
        network: &Network,
        programs: &[PathBuf],
        folder: &Path,
    ) -> Result<Self, Trouble> {
        let Plan { name, emulator, kernel, model, queues, .. } = plan;
        let image = folder.join(format!("{name}.cpio"));
        let modules = [&PORT_MODULES, model.modules(), plan.modules].concat();
        image::write(&image, kernel, programs, &modules)?;
        let multi_queue = match plan.tap_queues() {
            1 => String::new(),
            several => format!(",queues={several}"),
        };
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec", network.name()])
            .arg(&emulator.program)
            .args(emulator.arguments())
            .args([
                "-machine",
                plan.machine(),
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
            ])
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-no-reboot"])
            .args(["-smp", &queues.to_string(), "-m", &MEMORY.to_string()])
            .arg("-kernel")
            .arg(&kernel.vmlinuz)
            .arg("-initrd")
            .arg(&image)
            .args(["-append", &plan.boot()])
            .args(["-serial", &format!("file:{name}.console")])
            .args(["-chardev", "stdio,id=port,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=port"])
            .args(["-qmp", &format!("unix:{name}.qmp,server=on,wait=off")])
            .arg("-netdev")
            .arg(format!("tap,id=net0,ifname={},script=no,downscript=no{multi_queue}", plan.tap()))
            .args(["-device", &plan.device()])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let errors = folder.join(format!("{name}.qemu"));
        let file = File::create(&errors);
        let file =
            file.map_err(|source| Setup::File { doing: "making", path: errors.clone(), source })?;
        command.stderr(file);
        let mut qemu =
            command.spawn().map_err(|source| Setup::Start { program: "setpriv".into(), source })?;
        let stdin = qemu.stdin.take().expect("piped above");
        let stdout = qemu.stdout.take().expect("piped above");
        let lines = Lines::of(&format!("machine {name}"), stdout);
        let folder = folder.to_owned();
        Ok(Self { name, folder, qemu, stdin, lines, said: VecDeque::new() })
    }

    /// Waits until it has booted, and sets its interface up.
    pub(super) fn set_up(&mut self, plan: &Plan) -> Result<(), Trouble> {
        let release = match self.next("booting")?.split_once(' ') {
            Some(("ready", release)) => release.to_owned(),
            other => return Err(self.unknown(format!("{other:?}"))),
        };
        if release != plan.kernel.release {
            return Err(Trouble::Unexpected {
                host: self.name(),
                expected: format!("kernel {}", plan.kernel.release),
                came: release,
            });
        }
        if plan.model == Model::Veth {
            self.put_veth_before_the_nic(plan.mtu)?;
        }
        // Addresses survive when the interface is down, and count at once.
        let sysctls = ["keep_addr_on_down", "accept_dad", "accept_ra"].into_iter().zip([1, 0, 0]);
        for (name, value) in sysctls {
            let path = format!("/proc/sys/net/ipv6/conf/{INTERFACE}/{name}");
            self.run(&format!("echo {value} > {path}"))?;
        }
        for address in &plan.addresses {
            self.run(&format!("ip addr add {address} dev {INTERFACE}"))?;
        }
        self.run(&format!("ip link set {INTERFACE} mtu {} up", plan.mtu))?;
        // The driver that is meant, not another that happens to know the device. One without a
        // device has no other.
        let driver = if plan.model == Model::Veth {
            vec![plan.model.driver().to_owned()]
        } else {
            self.run(&format!("basename $(readlink /sys/class/net/{INTERFACE}/device/driver)"))?
        };
        if driver != [plan.model.driver()] {
            return Err(Trouble::Unexpected {
                host: self.name(),
                expected: format!("driver {}", plan.model.driver()),
                came: driver.join("\n"),
            });
        }
        self.wait_for_carrier()
    }

    /// Gives the NIC another name, and its own to one end of a veth pair, the other end of which is
    /// bridged to the NIC.
    fn put_veth_before_the_nic(&mut self, mtu: u32) -> Result<(), Trouble> {
        let commands = [
            format!("ip link set {INTERFACE} down"),
            format!("ip link set {INTERFACE} name nic0"),
            // The kernel names the other end.
            format!("ip link add {INTERFACE} type veth"),
            "brctl addbr br0".to_owned(),
            "brctl addif br0 nic0".to_owned(),
            "brctl addif br0 veth0".to_owned(),
            format!("ip link set nic0 mtu {mtu} up"),
            format!("ip link set veth0 mtu {mtu} up"),
            format!("ip link set br0 mtu {mtu} up"),
        ];
        commands.iter().try_for_each(|command| self.run(command).map(drop))
    }

    /// Sets the interface up or down, as its administrator does.
    pub(super) fn set_link(&mut self, up: bool) -> Result<(), Trouble> {
        self.run(&format!("ip link set {INTERFACE} {}", if up { "up" } else { "down" })).map(drop)
    }

    /// Plugs the NIC's cable in or out.
    pub(super) fn set_cable(&mut self, plugged: bool) -> Result<(), Trouble> {
        let set = json!({
            "execute": "set_link", "arguments": { "name": "net0", "up": plugged }
        });
        self.monitor(&[json!({ "execute": "qmp_capabilities" }), set])
    }

    /// Takes the output of a program so far and nobody has taken.
    pub(super) fn said_until_now(&mut self, program: &'static str) -> Result<Vec<String>, Trouble> {
        // Whatever it said before this command ends comes before that.
        self.run("true")?;
        let mut said = Vec::new();
        while let Some(line) = self.take_said(program) {
            said.push(line);
        }
        Ok(said)
    }

    fn take_said(&mut self, program: &'static str) -> Option<String> {
        let position = self.said.iter().position(|line| text_of(line, program).is_some())?;
        let line = self.said.remove(position)?;
        text_of(&line, program).map(str::to_owned)
    }

    fn wait_for_carrier(&mut self) -> Result<(), Trouble> {
        let path = format!("/sys/class/net/{INTERFACE}/carrier");
        // In there, where a moment can be waited for. As long as it takes a link to come up, and
        // much longer.
        let wait = format!(
            "for i in $(seq 600); do [ \"$(cat {path})\" = 1 ] && break; usleep 100000; done; \
             [ \"$(cat {path})\" = 1 ]"
        );
        self.run(&wait).map(drop)
    }

    /// The end of what its kernel and QEMU have said, for a person who wants to know why.
    pub(super) fn consoles(&self) -> String {
        /// Lines of each.
        const SHOWN: usize = 60;
        let mut text = String::new();
        let heard = self.lines.heard.join("\n");
        for (what, said) in
            [("console", self.file("console")), ("QEMU", self.file("qemu")), ("virtio port", heard)]
        {
            let lines: Vec<&str> = said.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN)..];
            text.push_str(&format!("--- machine {}: the end of its {what}\n", self.name));
            for line in shown {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }

    fn file(&self, extension: &str) -> String {
        let path = self.folder.join(format!("{}.{extension}", self.name));
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Runs a shell command in the machine and gives what it has printed.
    pub(super) fn run(&mut self, command: &str) -> Result<Vec<String>, Trouble> {
        let ended = |name| Trouble::Ended { host: name, waiting_for: command.to_owned() };
        let line = format!("{command}\n");
        // QEMU has gone.
        let written = self.stdin.write_all(line.as_bytes()).and_then(|()| self.stdin.flush());
        written.map_err(|_gone| ended(self.name()))?;
        let mut out = Vec::new();
        loop {
            let line = self.next(command)?;
            match line.split_once(' ') {
                Some(("out", text)) => out.push(text.to_owned()),
                Some(("done", "0")) => return Ok(out),
                Some(("done", status)) => {
                    return Err(Trouble::Command {
                        host: self.name(),
                        command: command.to_owned(),
                        status: status.to_owned(),
                        said: out.join("\n"),
                    });
                }
                Some(_) if is_program_line(&line) => self.said.push_back(line),
                _ => return Err(self.unknown(line)),
            }
        }
    }

    fn next(&mut self, waiting_for: &str) -> Result<String, Trouble> {
        let line = self.lines.next(waiting_for)?;
        let ended = || Trouble::Ended { host: self.name(), waiting_for: waiting_for.to_owned() };
        line.ok_or_else(ended)
    }

    fn unknown(&self, line: String) -> Trouble {
        Trouble::Unknown { host: self.name(), line }
    }

    /// Asks the monitor, whose answers are objects, a line each.
    fn monitor(&self, commands: &[Value]) -> Result<(), Trouble> {
        let trouble = |said: String| Trouble::Monitor { host: self.name(), said };
        let io = |error: std::io::Error| trouble(error.to_string());
        // Through the folder's descriptor: a socket's path is short, and a folder's need not be.
        let folder = File::open(&self.folder).map_err(io)?;
        let path = format!("/proc/self/fd/{}/{}.qmp", folder.as_raw_fd(), self.name);
        let mut socket = UnixStream::connect(path).map_err(io)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        let mut answers = BufReader::new(socket.try_clone().map_err(io)?).lines();
        let mut answer = || -> Result<Value, Trouble> {
            let line = answers.next().ok_or_else(|| trouble("it has gone".into()))?.map_err(io)?;
            serde_json::from_str(&line).map_err(|error| trouble(format!("{line}: {error}")))
        };
        answer()?;
        for command in commands {
            socket.write_all(format!("{command}\n").as_bytes()).map_err(io)?;
            loop {
                let answer = answer()?;
                if answer.get("return").is_some() {
                    break;
                }
                // Events come in between.
                if answer.get("event").is_none() {
                    return Err(trouble(answer.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Returns the text of a line, if it is the program's.
fn text_of<'l>(line: &'l str, program: &str) -> Option<&'l str> {
    let (name, text) = line.split_once(' ').unwrap_or((line, ""));
    (name == program).then_some(text)
}

impl Host for Machine {
    fn name(&self) -> String {
        format!("machine {}", self.name)
    }

    fn start(&mut self, program: &'static str, arguments: &[String]) -> Result<(), Trouble> {
        let rma_bench = image::program("rma-bench");
        self.run(&format!("start {program} {rma_bench} {program} {}", arguments.join(" ")))
            .map(drop)
    }

    fn line(&mut self, program: &'static str) -> Result<String, Trouble> {
        if let Some(text) = self.take_said(program) {
            return Ok(text);
        }
        loop {
            let line = self.next(&format!("rma-bench {program}"))?;
            if let Some(text) = text_of(&line, program) {
                return Ok(text.to_owned());
            }
            if !is_program_line(&line) {
                return Err(self.unknown(line));
            }
            self.said.push_back(line);
        }
    }

    fn signal(&mut self, program: &'static str, signal: &'static str) -> Result<(), Trouble> {
        self.run(&format!("kill -{signal} $(cat /tmp/{program}.pid)")).map(drop)
    }

    fn grant(&mut self) -> Result<String, Trouble> {
        self.run(&format!("cat {}", Self::GRANT)).map(|lines| lines.concat())
    }

    fn put_grant(&mut self, grant: &str) -> Result<(), Trouble> {
        // A name of its own first: nobody sees half of it.
        let path = Self::GRANT;
        self.run(&format!("umask 077; printf '%s' '{grant}' > {path}.new && mv {path}.new {path}"))
            .map(drop)
    }

    fn grant_path(&self) -> String {
        Self::GRANT.to_owned()
    }
}

impl Machine {
    const GRANT: &'static str = "/tmp/grant.json";
}

impl Drop for Machine {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
