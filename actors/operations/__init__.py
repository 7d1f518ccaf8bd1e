"""What does an opcode do?"""
