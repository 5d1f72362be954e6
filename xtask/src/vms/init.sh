#!/bin/busybox sh
# The only program of a virtual machine that `cargo xtask vms` makes: it loads the NIC's modules, then runs what comes
# through a virtio port, one command a line, and answers there:
#
#   ready RELEASE     once, when the machine can be used
#   out TEXT          what a command has printed, line by line
#   done STATUS       a command has ended
#   NAME TEXT         what a program that `start` has started prints; at its end `exit-status STATUS`
#
# (A serial line would lose bytes when the machine is slow.) The kernel, and whatever goes wrong in here, is heard on the
# console.

/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var/lib
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin
export PATH=/bin
for module in $(cat /modules/order); do
    insmod "/modules/$module" || echo "insmod $module failed"
done
ip link set lo up

# start NAME COMMAND...: runs it beside, and leaves its process id in /tmp/NAME.pid.
start() {
    name=$1
    shift
    {
        "$@" 2>&1 &
        echo $! >"/tmp/$name.pid"
        wait $!
        echo "exit-status $?"
    } </dev/null 2>/dev/console | while IFS= read -r text; do
        printf '%s %s\n' "$name" "$text"
    done >&3 2>/dev/console &
}

# Opened once, which is as often as it can be, for all.
exec 3<>/dev/vport0p1
printf 'ready %s\n' "$(uname -r)" >&3
while IFS= read -r line; do
    # In a shell of its own, which may end.
    (eval "$line") >/tmp/out 2>&1
    status=$?
    while IFS= read -r text; do
        printf 'out %s\n' "$text"
    done </tmp/out >&3
    printf 'done %s\n' "$status" >&3
done <&3
