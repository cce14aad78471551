# Tries the ways out of a view that other tools have had: attack.sh DIR, a real directory in which nothing may appear. What it says
# on standard output beginning with "got" must not happen either.
work=$1
for mount in /tmp /home /var /etc /usr; do umount -l "$mount"; done
mount -o remount,bind,rw /
mount -o remount,rw /
echo x >"$work/after-umount"
for pid in 1 2 self; do
    nsenter -t "$pid" -m -- sh -c "echo x >$work/nsenter"
    for way in root cwd; do echo x >"/proc/$pid/$way$work/through-proc"; done
done
mkdir -p /tmp/q
mount -t devtmpfs d /tmp/q && find /tmp/q -type b -exec head -c1 {} \; | grep -q . && echo "got a block device"
mount -t ext4 "$(findmnt -no SOURCE /)" /tmp/q && echo "got the disk"
mount --bind / /tmp/q && mount -o remount,bind,rw /tmp/q
echo x >"/tmp/q$work/bind"
mount -t proc p /tmp/q && for pid in /tmp/q/[0-9]*; do echo x >"$pid/root$work/other-proc"; done
cat /proc/1/mem /proc/kcore | head -c1 | grep -q . && echo "got memory"
hostname effigy-attack && echo "got the host's name"
for file in /proc/1/fd/*; do echo x >"$file$work/descriptor"; done
exit 0
