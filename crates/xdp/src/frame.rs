//! The model of a frame: Ethernet, VLAN tags, IP, UDP. It reads and writes bytes, and knows no kernel.
